"""Saving with several workers: all workers may save a model to the same file."""

import contextlib
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib

from ..errors import UserError
from .hooks import StrategyHooks, hooks_of
from .patching import Patch

_ONE_TARGET_FORMATS = ("tf_saved_model", "onnx", "litert")
"""Formats of `model.export` that write only the given file or folder."""
_MOST_TRIES = 100


def _save(
    original: Callable[..., None], model: Any, filepath: Any, *args: Any, **options: Any
) -> None:
    """Write a temporary file or folder, then replace the file that another worker may have saved.

    No worker waits for another worker, and each worker can open the file at once.
    """
    hooks = _hooks(model)
    if hooks is None or not isinstance(filepath, str | os.PathLike) or "://" in str(filepath):
        return original(model, filepath, *args, **options)
    path = Path(filepath)
    temporary = path.with_name(f".worker{hooks.worker}.{path.name}")
    old = path.with_name(f".before{hooks.worker}.{path.name}")
    _remove(temporary)
    try:
        original(model, str(temporary), *args, **options)
        _replace(path, temporary, old)
    finally:
        _remove(temporary)
        _remove(old)
    return None


def _save_weights(
    original: Callable[..., None],
    model: Any,
    filepath: Any,
    max_shard_size: Any = None,
    *args: Any,
    **options: Any,
) -> None:
    """Save weights in several files on the chief alone; raise `UserError` on another worker."""
    if max_shard_size is None:
        return _save(original, model, filepath, max_shard_size, *args, **options)
    _check_chief(model, f"max_shard_size={max_shard_size!r}, which writes several files,")
    return original(model, filepath, max_shard_size, *args, **options)


def _export(
    original: Callable[..., None],
    model: Any,
    filepath: Any,
    format: str = "tf_saved_model",  # noqa: A002 - Keras's
    verbose: Any = None,
    **options: Any,
) -> None:
    """Export formats of several files on the chief alone; raise `UserError` on another worker.

    By default no message is printed, as the message would name the temporary folder.
    """
    if _hooks(model) is None:
        return original(model, filepath, format, verbose, **options)
    with _slow_save(model):
        if format not in _ONE_TARGET_FORMATS:
            _check_chief(model, f"format={format!r}")
            return original(model, filepath, format, verbose, **options)
        return _save(original, model, filepath, format, bool(verbose), **options)


def _check_overwrite(
    original: Callable[..., None],
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    *args: Any,
    **options: Any,
) -> None:
    """Accept `overwrite=False` on the chief alone; raise `UserError` on another worker.

    Another worker would ask the user about the file that the chief writes.
    """
    if not overwrite:
        _check_chief(model, "overwrite=False")
    with _slow_save(model):
        original(model, filepath, overwrite, *args, **options)


def _slow_save(model: Any) -> AbstractContextManager[None]:
    hooks = _hooks(model) or StrategyHooks()
    return hooks.step_watch.slow("saving a model")


def _check_chief(model: Any, argument: str) -> None:
    hooks = _hooks(model)
    if hooks is not None and not hooks.is_chief:
        raise UserError(
            f"received {argument} on worker {hooks.worker}: another worker may write the same"
            " files, so save on the chief alone, in `if strategy.is_chief:`"
        )


def _hooks(model: Any) -> Any:
    """Return the strategy of a model if it has several workers."""
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    return hooks if hooks is not None and hooks.workers > 1 else None


def _replace(path: Path, temporary: Path, old: Path) -> None:
    if not temporary.is_dir():
        temporary.replace(path)
        return
    for tries_left in reversed(range(_MOST_TRIES)):
        _remove(old)
        # A folder cannot replace a folder. Between these lines there is no folder, or the folder of
        # another worker.
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            if not tries_left:
                raise
        else:
            return


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_WHY = "With several workers, all workers write into the same file at the same time."
_TEST = "test_a_model_is_written_into_the_file_that_is_there"

PATCHES = tuple(
    Patch(owner=owner, name=name, replacement=replacement, why=_WHY, test=_TEST)
    for owner, name, replacement in (
        (saving_lib, "save_model", _save),
        (legacy_h5_format, "save_model_to_hdf5", _save),
        (saving_lib, "save_weights_only", _save_weights),
        (keras.Model, "export", _export),
        (keras.Model, "save", _check_overwrite),
        (keras.Model, "save_weights", _check_overwrite),
    )
)
