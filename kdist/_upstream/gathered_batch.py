"""Compute on the rows of all replicas what cannot be combined from the replicas' results."""

import threading
from collections.abc import Callable
from typing import Any

import keras

from .active_batch import ActiveBatch
from .draws import drawing_for_all_replicas
from .internals import copy_keras_attributes

# Each replica is traced in its own thread.
_thread = threading.local()


def is_on_gathered_batch() -> bool:
    """Whether the current thread computes on the rows of all replicas."""
    return getattr(_thread, "gathered", False)


def compute_on_gathered_batch(batch: ActiveBatch, compute: Callable[..., Any], *data: Any) -> Any:
    """Compute a number on the rows of all replicas; the result is the same on each."""
    gathered = [gather(batch, structure) for structure in data]
    _thread.gathered = True
    try:
        with drawing_for_all_replicas():
            return batch.mark(compute(*gathered), "SAME")
    finally:
        _thread.gathered = False


def call_on_gathered_batch(
    batch: ActiveBatch, original: Callable[..., Any], owner: Any, args: Any, options: Any
) -> Any:
    """Call a method of `owner` with the rows of all replicas as arguments."""
    names = list(options)

    def call(*data: Any) -> Any:
        positional, named = data[: len(args)], data[len(args) :]
        return original(owner, *positional, **dict(zip(names, named, strict=True)))

    return compute_on_gathered_batch(batch, call, *args, *options.values())


def gather(batch: ActiveBatch, structure: Any) -> Any:
    """Return the rows of all replicas of every tensor in a structure, with masks and logits."""
    if is_on_gathered_batch():
        return structure

    def gather_leaf(leaf: Any) -> Any:
        if leaf is None or not hasattr(leaf, "shape") or not len(leaf.shape):
            return leaf
        return copy_keras_attributes(leaf, batch.all_gather(leaf), batch.all_gather)

    return keras.tree.map_structure(gather_leaf, structure, none_is_leaf=False)
