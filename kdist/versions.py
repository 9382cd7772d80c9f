"""The versions of Keras and TensorFlow that kdist was tested with."""

from collections.abc import Mapping

TESTED = {"Keras": ("3.14", "3.15"), "TensorFlow": ("2.20", "2.21")}


def untested(versions: Mapping[str, str]) -> str | None:
    """Return a line about versions that kdist was not tested with; `None` if there are none.

    Args:
        versions: Those installed, of `Keras`, `TensorFlow` or both.
    """
    found = [
        f"{name} {' and '.join(TESTED[name])}, not with {version}"
        for name, version in versions.items()
        if ".".join(version.split(".")[:2]) not in TESTED[name]
    ]
    if not found:
        return None
    return (
        f"kdist was tested with {', and with '.join(found)}: if training on several replicas fails,"
        " install one of those"
    )
