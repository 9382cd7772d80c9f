"""Virtual environments of benchmarks, with kdist's dependencies and other packages."""

import contextlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from .measure import ROOT


@contextlib.contextmanager
def make_environment(parent: Path | None, name: str) -> Iterator[Path]:
    """Make a virtual environment, or reuse the one in `parent`; without `parent`, remove it."""
    folder = (parent or Path(tempfile.mkdtemp(prefix="kdist-benchmark-"))) / name
    try:
        if not (folder / "bin" / "python").exists():
            venv.create(folder, with_pip=True)
        yield folder.absolute()
    finally:
        if parent is None:
            shutil.rmtree(folder.parent)


def install(folder: Path, wanted: Sequence[str], *, without: Sequence[str] = ()) -> None:
    """Install kdist's dependencies, except for the packages in `without`, and `wanted`.

    kdist itself is imported from this repository: its programs run with `PYTHONPATH=ROOT`.

    Raises:
        RuntimeError: pip failed, with its last line.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = [
        name for name in project["dependencies"] if requirement_name(name) not in without
    ]
    run(folder, "pip", "install", "--quiet", "--disable-pip-version-check", *dependencies, *wanted)


def installed_versions(folder: Path, *names: str) -> list[str]:
    """Return the versions of packages that are installed in an environment."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    return run(folder, "python", "-c", code, *names).split()


def requirement_name(requirement: str) -> str:
    """Return the package's name of `"keras>=3.14"`."""
    return re.split(r"[^\w-]", requirement)[0]


def run(folder: Path, program: str, *arguments: str) -> str:
    """Run a program of an environment, and return its output."""
    done = subprocess.run(
        [folder / "bin" / program, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no reason was given"])[-1])
    return done.stdout
