"""Installed files, and the cost of imports."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def imported_after(code, names):
    code += f"; import sys; print(sorted({names!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_kdist_imports_nothing_heavy():
    heavy = {"tensorflow", "keras", "keras_tuner", "wandb"}
    assert imported_after("import kdist", heavy) == "[]"


def test_training_imports_no_tracker_and_no_tuner():
    code = "import kdist; kdist.MirroredStrategy, kdist.callbacks, kdist.models.WideResNet;"
    code += "import kdist.training.run"
    assert imported_after(code, {"keras_tuner", "wandb"}) == "[]"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the source distribution, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("distributions")
    build = ["-m", "build", "--outdir", folder, ROOT]
    subprocess.run([sys.executable, *build], capture_output=True, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environments(tmp_path_factory, wheel):
    """Fresh environments beside this one's dependencies: with kdist's wheel, and without kdist."""
    folder = tmp_path_factory.mktemp("environments")
    found = {}
    for name in ("wheel", "empty"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / name], check=True)
        found[name] = folder / name / "bin" / "python"
        site = folder / name / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        # A path that a .pth file adds is not searched for .pth files: this checkout stays out.
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = ["-m", "pip", "--python", found["wheel"], "install", "--quiet", "--no-deps"]
    subprocess.run([sys.executable, *pip, "--ignore-installed", wheel], check=True)
    return found


def test_the_command_of_the_wheel_runs_anywhere(environments, tmp_path):
    command = environments["wheel"].with_name("kdist")
    variables = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [command, "--help"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert "train" in done.stdout


EXTRAS_OF_MESSAGES = """
from importlib.metadata import metadata
from kdist.versions import EXTRAS
assert set(EXTRAS) <= set(metadata("kdist").get_all("Provides-Extra"))
"""


def test_the_wheel_has_the_extras_that_messages_name(environments, tmp_path):
    command = [environments["wheel"], "-c", EXTRAS_OF_MESSAGES]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, check=True)


MODULES = """
import importlib.util
import kdist
for name in ("callbacks.print_throughput", "models.wide_resnet", "processes.child"):
    print(importlib.util.find_spec("kdist." + name).origin)
from kdist.training.recipes import recipe_names
assert recipe_names()
"""


@pytest.mark.parametrize("environment", ["wheel", "empty"])
@pytest.mark.parametrize("at_root", [True, False])
def test_every_package_imports_in_every_kind_of_installation(
    environments, environment, at_root, tmp_path
):
    """From a checkout's root, whose folders come before what is installed, and from elsewhere."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT) if environment == "empty" else ""}
    python, folder = environments[environment], ROOT if at_root else tmp_path

    def run(*args):
        return subprocess.run(
            [python, *args], cwd=folder, env=variables, capture_output=True, text=True, check=True
        ).stdout

    origins = run("-c", MODULES).splitlines()
    is_checkout = at_root or environment == "empty"
    assert [origin.startswith(f"{ROOT}/kdist/") for origin in origins] == [is_checkout] * 3
    assert "train" in run("-m", "kdist", "--help")
