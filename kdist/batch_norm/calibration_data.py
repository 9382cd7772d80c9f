"""Batches for `recalibrate_batch_norm`, from datasets, arrays or iterables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..arguments import as_integer
from ..errors import UserError


def calibration_batches(data: Any, steps: int | None, batch_size: int) -> Iterable[Any]:
    """Return the first `steps` batches of `data`, of any kind that `recalibrate_batch_norm` takes.

    Raises:
        UserError: `data` is infinite and `steps` is `None`, or an argument is invalid.
    """
    if steps is not None:
        _check_positive("steps", steps)
    _check_positive("batch_size", batch_size)
    if isinstance(data, np.ndarray | tf.Tensor | tuple | dict):
        data = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    if isinstance(data, tf.distribute.DistributedDataset) or not isinstance(
        data, Iterable | keras.utils.PyDataset
    ):
        raise UserError(
            f"received {type(data).__name__} for data: pass a tf.data.Dataset (not distributed),"
            " arrays, or an iterable of batches"
        )
    if steps is None and _is_endless(data):
        raise UserError("received infinite data: say how many batches to take, as in steps=100")
    if isinstance(data, keras.utils.PyDataset):
        # Its own iterator would never end.
        data = map(data.__getitem__, range(data.num_batches or steps or 0))
    return itertools.islice(data, steps)


def _is_endless(data: Any) -> bool:
    if isinstance(data, keras.utils.PyDataset):
        return data.num_batches is None
    return isinstance(data, tf.data.Dataset) and bool(
        data.cardinality() == tf.data.INFINITE_CARDINALITY
    )


def _check_positive(name: str, value: int) -> None:
    if (as_integer(value) or 0) < 1:
        raise UserError(f"{name} has to be an integer of at least 1, received {value!r}")
