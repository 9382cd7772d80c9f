"""kdist on several versions of Keras and TensorFlow: is each pair of them exact?

    python -m benchmarks.versions                                   # every pair, about half an hour
    python -m benchmarks.versions --keras 3.16 --tensorflow 2.21    # a pair that is not allowed yet
    python -m benchmarks.versions --lowest                          # of NumPy, rich and all others
    python -m benchmarks.versions --folder environments             # keeps the environments

For each pair, makes a virtual environment with kdist's other dependencies, and runs four groups of
tests in it: all parity cases on two replicas, the rules by which operations are divided, the
upstream tests of private names and patches, and the command line with sweeps and searches. Prints
a Markdown table with the number of tests that passed, then the names of tests that failed. An
environment takes 2.5 GB, and is removed after its tests unless `--folder` is passed. The exit code
is 1 if anything failed.
"""

import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from kdist.strategies.hardware import describe_host
from kdist.versions import TESTED

from .environments import install, installed_versions, make_environment, requirement_name
from .measure import ROOT, Table, make_parser

TIMEOUT_SECONDS = 3600
GROUPS = {
    "parity": ["tests/parity/test_parity.py", "-k", "test_two_replicas_give_what_one_gives"],
    "rules": ["tests/spmd"],
    "upstream tests": ["tests/upstream"],
    "command line": ["tests/cli", "tests/study", "-m", "not slow"],
}


def main() -> int:
    """Run all pairs; return the exit code."""
    parser = make_parser(__doc__)
    for option, name in (("--keras", "Keras"), ("--tensorflow", "TensorFlow")):
        text = f"versions of {name}, such as {TESTED[name][-1]} (default {' '.join(TESTED[name])})"
        parser.add_argument(option, nargs="+", default=TESTED[name], help=text)
    parser.add_argument("--lowest", action="store_true", help="the other dependencies' bounds")
    parser.add_argument("--folder", type=Path, help="where environments are made, and kept")
    options = parser.parse_args()
    print("{date}, {cpu}, {cores} cores, Python {python}\n".format(**describe_host()))
    table = Table("Keras", "TensorFlow", *GROUPS, file=options.json)
    failed: list[str] = []
    for keras, tensorflow in itertools.product(options.keras, options.tensorflow):
        with make_environment(options.folder, f"keras-{keras}-tensorflow-{tensorflow}") as folder:
            try:
                versions = _install(folder, keras, tensorflow, lowest=options.lowest)
            except RuntimeError as error:
                table.add(keras, tensorflow, *["not installed"] * len(GROUPS))
                failed.append(f"Keras {keras}, TensorFlow {tensorflow}: {error}")
                continue
            cells = []
            for group, arguments in GROUPS.items():
                count, wrong = _run_tests(folder, arguments)
                cells.append(f"{count - len(wrong)} of {count}")
                pair = "Keras {}, TensorFlow {}".format(*versions)
                failed += [f"{pair}, {group}: {test}" for test in wrong]
            table.add(*versions, *cells)
    print("".join(f"\n- {line}" for line in failed))
    return int(bool(failed))


def _install(folder: Path, keras: str, tensorflow: str, *, lowest: bool) -> list[str]:
    """Install a pair, with the requirements of kdist and its tests; return the versions.

    With `lowest`, the other requirements of kdist have the lowest versions that are allowed.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        requirement
        for requirement in extras["dev"]
        if requirement_name(requirement) in ("pytest", "hypothesis")
    ]
    wanted += extras["tune"]
    wanted += [f"keras=={keras}.*", f"tensorflow=={tensorflow}.*"]
    if lowest:
        wanted += [
            re.sub(r">=([\d.]+)", r"==\1", requirement)
            for requirement in project["dependencies"]
            if requirement_name(requirement) not in ("keras", "tensorflow")
        ]
    install(folder, wanted, without=("keras", "tensorflow"))
    return installed_versions(folder, "keras", "tensorflow")


def _run_tests(folder: Path, arguments: list[str]) -> tuple[int, list[str]]:
    """Return the number of tests, and the names of failed tests."""
    options = ["-q", "--tb=no", "-rpfE", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [folder / "bin" / "python", "-m", "pytest", *options, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 1, [f"no end within {TIMEOUT_SECONDS} s"]
    results = re.findall(r"^(PASSED|FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if not results:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        return 1, [f"no test was run, exit code {done.returncode}: {''.join(last)}"]
    return len(results), [name for result, name in results if result != "PASSED"]


if __name__ == "__main__":
    sys.exit(main())
