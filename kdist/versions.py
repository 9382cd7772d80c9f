"""The versions that kdist was tested with, and its optional packages."""

import importlib.metadata
import importlib.util
import platform
from collections.abc import Mapping

from .errors import UserError

TESTED = {"Keras": ("3.14", "3.15"), "TensorFlow": ("2.20", "2.21")}
EXTRAS = {
    "dashboard": ("wandb_workspaces",),
    "tune": ("sklearn",),
    "ray": ("ray",),
    "remote": ("fsspec",),
}
"""The modules of each extra in `pyproject.toml`."""
_PACKAGES = ("kdist", "tensorflow", "keras", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of kdist, TensorFlow, Keras, NumPy and Python, by name."""
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return packages | {"python": platform.python_version()}


def require_extra(extra: str) -> None:
    """Raise an error unless the packages of an extra are installed."""
    missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"the module {missing[0]} of the extra kdist[{extra}] is not installed: run pip install"
            f" 'kdist[{extra}]', or in a checkout pip install '.[{extra}]'"
        )


def describe_untested(versions: Mapping[str, str]) -> str | None:
    """Return a line about versions that kdist was not tested with; `None` if all were tested."""
    untested = [
        f"{name} {' and '.join(TESTED[name])}, not with {version}"
        for name, version in versions.items()
        if ".".join(version.split(".")[:2]) not in TESTED[name]
    ]
    if not untested:
        return None
    return (
        f"kdist was tested with {', and with '.join(untested)}: if training on several replicas"
        " fails, install one of the tested versions"
    )
