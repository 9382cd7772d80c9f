"""What is installed, and what importing it costs."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"kdist.callbacks": "callbacks", "kdist.models": "models"}


def test_every_package_is_installed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for folder in ("kdist", "callbacks", "models")
        for path in (ROOT / folder).rglob("__init__.py")
    }
    mapped = {folder: package for package, folder in FOLDERS.items()}
    assert sorted(mapped.get(name, name) for name in found) == sorted(
        PYPROJECT["tool"]["setuptools"]["packages"]
    )


def test_every_public_name_can_be_had():
    for package in ("kdist", "kdist.data", "kdist.callbacks", "kdist.models", "kdist.tracking"):
        module = importlib.import_module(package)
        assert module.__all__
        for name in module.__all__:
            assert getattr(module, name) is not None


def imported_after(code, names):
    code += f"; import sys; print(sorted({names!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_kdist_imports_nothing_heavy():
    heavy = {"tensorflow", "keras", "keras_tuner", "wandb", "matplotlib"}
    assert imported_after("import kdist", heavy) == "[]"


def test_training_imports_no_tracker_and_no_tuner():
    # Keras itself imports matplotlib.
    code = "import kdist.strategy, kdist.training, kdist.callbacks, kdist.models"
    assert imported_after(code, {"keras_tuner", "wandb"}) == "[]"
