"""The reference documents every public name, and the columns of every table that kdist writes."""

import ast
import re
import subprocess
import sys

import kdist
import pytest
from kdist.callbacks.save_training_data import COLUMNS as HISTORY
from kdist.study.experiment import POINT_COLUMNS as POINTS
from kdist.study.search_results import TRIAL_COLUMNS as TRIALS
from markdown_pages import ROOT, documented_objects

# Where the modules are documented that `kdist/__init__.pyi` names.
MODULES = ("callbacks", "data", "errors", "layers", "models", "optimizers")
MODULES += ("checkpoint", "tools", "tools.evaluate", "tools.find", "tracking", "training", "study")


def names_in_stubs():
    for stub in sorted((ROOT / "kdist").rglob("*.pyi")):
        package = ".".join(stub.parent.relative_to(ROOT).parts)
        for statement in ast.parse(stub.read_text()).body:
            if isinstance(statement, ast.ImportFrom):
                yield from (f"{package}.{alias.asname}" for alias in statement.names)


def public_names():
    modules = {f"kdist.{name}" for name in MODULES}
    names = set(names_in_stubs()) - modules
    for module in (kdist.callbacks, kdist.models):
        names |= {f"{module.__name__}.{name}" for name in module.__all__}
    # Documented where they live.
    errors = {"kdist.errors.NonFiniteWeightsError", "kdist.errors.UserError"}
    return names | errors


def test_every_public_name_is_documented_once():
    assert sorted(documented_objects()) == sorted(public_names())


@pytest.mark.slow
def test_import_kdist_alone_gives_every_documented_name():
    names = sorted(documented_objects())
    code = f"import kdist; [eval(name) for name in {names}]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("### `history.csv`", HISTORY),
        ("### `points.csv`", POINTS),
        ("### `trials.csv`", {*TRIALS} - {"values"}),
    ],
)
def test_columns_are_documented(heading, columns):
    page = (ROOT / "docs" / "reference" / "run-folder.md").read_text()
    table = page.split(heading)[1].split("\n\n")[1]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    documented = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(documented) == sorted(columns)
