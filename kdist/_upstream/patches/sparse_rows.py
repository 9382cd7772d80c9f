"""Patch how sparse tensors come out of a distributed dataset: a replica may get no rows."""

import contextvars
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib

from ..hooks import StrategyHooks
from ..patching import TENSORFLOW, Patch

_divided = contextvars.ContextVar("divided", default=False)


def _next(original: Callable[..., Any], iterator: Any, *args: Any, **options: Any) -> Any:
    """Say that a batch is divided over replicas of kdist."""
    token = _divided.set(isinstance(iterator._strategy, StrategyHooks))
    try:
        return original(iterator, *args, **options)
    finally:
        _divided.reset(token)


def _from_tensors(original: Callable[..., Any], spec: Any, tensors: Any) -> Any:
    """Deserialize no rows as a tensor without rows."""
    if not _divided.get() or not spec.shape.rank:
        return original(spec, tensors)
    (serialized,) = tensors

    def no_rows() -> Any:
        # As in TensorFlow's own tensors without rows, a size that is not known is 0.
        shape = [0, *(size or 0 for size in spec.shape[1:])]
        return tf.raw_ops.SerializeSparse(
            sparse_indices=tf.zeros((0, len(shape)), tf.int64),
            sparse_values=tf.zeros((0,), spec.dtype),
            sparse_shape=tf.constant(shape, tf.int64),
            out_type=tf.variant,
        )

    return original(spec, [tf.cond(tf.size(serialized) > 0, lambda: serialized, no_rows)])


_WHY = "Crashes if a replica gets no rows of a sparse batch."
_CANARY = "test_a_replica_without_sparse_rows_crashes"

PATCHES = (
    *(
        Patch(
            owner=input_lib.DistributedIteratorBase,
            name=name,
            replacement=_next,
            why=_WHY,
            canary=_CANARY,
            seen_in=TENSORFLOW,
        )
        for name in ("get_next", "get_next_as_optional")
    ),
    Patch(
        owner=tf.SparseTensorSpec,
        name="_from_compatible_tensor_list",
        replacement=_from_tensors,
        why=_WHY,
        canary=_CANARY,
        seen_in=TENSORFLOW,
    ),
)
