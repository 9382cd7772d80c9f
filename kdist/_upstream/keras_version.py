"""Warn about versions of Keras with which the private names were not tested."""

import warnings

KNOWN_KERAS = ("3.15",)


def warn_of_unknown_keras(version: str) -> None:
    """Warn if the private names and patches were not tested with this version of Keras."""
    if not version.startswith(KNOWN_KERAS):
        warnings.warn(
            f"kdist was tested with Keras {' and '.join(KNOWN_KERAS)}, not with {version}: if"
            " training on several replicas fails, install one of those",
            stacklevel=2,
        )
