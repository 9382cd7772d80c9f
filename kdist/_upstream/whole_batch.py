"""What no sum of parts gives: computed on the rows of all replicas."""

import threading
from collections.abc import Callable
from typing import Any

import keras

from .active_batch import ActiveBatch
from .draws import drawing_for_all

# Replicas are traced in threads of their own.
_thread = threading.local()


def has_whole_batch() -> bool:
    """Whether this thread computes on the rows of all replicas."""
    return getattr(_thread, "whole_batch", False)


def on_whole_batch(batch: ActiveBatch, compute: Callable[..., Any], *data: Any) -> Any:
    """Compute a number on the rows of all replicas: the same on each, as no part of it is exact."""
    gathered = [gather(batch, structure) for structure in data]
    _thread.whole_batch = True
    try:
        with drawing_for_all():
            return batch.mark(compute(*gathered), "SAME")
    finally:
        _thread.whole_batch = False


def call_with_whole_batch(
    batch: ActiveBatch, original: Callable[..., Any], owner: Any, args: Any, options: Any
) -> Any:
    """Call a method of `owner` with the rows of all replicas in its arguments."""
    names = list(options)

    def whole(*data: Any) -> Any:
        positional, named = data[: len(args)], data[len(args) :]
        return original(owner, *positional, **dict(zip(names, named, strict=True)))

    return on_whole_batch(batch, whole, *args, *options.values())


def gather(batch: ActiveBatch, structure: Any) -> Any:
    """The rows of all replicas of every tensor in a structure, masks too."""
    if has_whole_batch():
        return structure

    def gathered(leaf: Any) -> Any:
        if leaf is None or not hasattr(leaf, "shape") or not len(leaf.shape):
            return leaf
        rows = batch.all_gather(leaf)
        mask = keras.src.backend.get_keras_mask(leaf)
        if mask is not None:
            keras.src.backend.set_keras_mask(rows, batch.all_gather(mask))
        return rows

    return keras.tree.map_structure(gathered, structure, none_is_leaf=False)
