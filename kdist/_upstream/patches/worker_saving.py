"""Patch saving for several workers, all of which may save a model to the same file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from ..hooks import hooks_of
from ..patching import Patch


def _save(
    original: Callable[..., None], model: Any, filepath: Any, *args: Any, **options: Any
) -> None:
    """Write a file of this worker's own, which then replaces the other workers'.

    So no worker needs to wait for another, and each can open the file at once.
    """
    hooks = hooks_of(model)
    if hooks is None or hooks.workers == 1 or not _is_one_file(filepath, args, options):
        return original(model, filepath, *args, **options)
    path = Path(filepath)
    own = path.with_name(f".worker{hooks.worker}.{path.name}")
    try:
        original(model, own, *args, **options)
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)
    return None


def _is_one_file(filepath: Any, args: Any, options: dict[str, Any]) -> bool:
    """Whether Keras overwrites one local file, and asks nobody."""
    is_path = isinstance(filepath, str | os.PathLike) and "://" not in str(filepath)
    return is_path and not args and not options and Path(filepath).suffix in (".keras", ".h5")


PATCHES = tuple(
    Patch(
        owner=keras.Model,
        name=name,
        replacement=_save,
        why="With several workers, all of them write into the same file at once.",
        canary="test_a_model_is_written_into_the_file_that_is_there",
    )
    for name in ("save", "save_weights")
)
