"""Versions of the software that a run was made with."""

import importlib.metadata
import platform

_PACKAGES = ("kdist", "tensorflow", "keras", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of kdist, TensorFlow, Keras, NumPy and Python, by name."""
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return packages | {"python": platform.python_version()}
