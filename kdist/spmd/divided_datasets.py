"""Data sets in the host's memory: batches are divided over replicas as they are read.

A single iterator reads whole batches, and each replica gets a copy of its rows. TensorFlow instead
gives each device an iterator of its own, and traces functions for the iterators in every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib, values
from tensorflow.python.framework import composite_tensor

from .collectives import HOST


def split_rows(value: Any, count: int) -> list[Any]:
    """Split a tensor by its rows into `count` parts, as TensorFlow's iterators do.

    All parts have equally many rows, but the last parts may have fewer rows or none.
    """
    known = value.shape[0]
    sizes = (
        _count_rows(tf.shape(value)[0], count) if known is None else _count_known_rows(known, count)
    )
    return tf.split(value, sizes, num=count)  # type: ignore[no-any-return]


def _count_rows(rows: Any, count: int) -> Any:
    most = -(-rows // count)
    return tf.clip_by_value(rows - most * tf.range(count), 0, most)


def _count_known_rows(rows: int, count: int) -> list[int]:
    most = -(-rows // count)
    return [min(max(rows - most * place, 0), most) for place in range(count)]


def _has_rows(spec: Any) -> bool:
    is_dense = isinstance(spec, tf.TensorSpec)
    return is_dense and bool(spec.shape.rank) and spec.dtype not in (tf.variant, tf.resource)


class _DividedData(composite_tensor.CompositeTensor):
    """A data set of whole batches, or its iterator, that divides each batch over the replicas.

    Sparse and ragged tensors stay whole: a step computes them whole, too.
    """

    _spec_type: type[_DividedSpec]

    def __init__(self, whole: Any, devices: Sequence[str]) -> None:
        self.whole, self.devices = whole, tuple(devices)

    @property
    def element_spec(self) -> Any:
        """Type specs of a batch, with a spec for the rows of each replica."""
        return tf.nest.map_structure(self._divided_spec, self.whole.element_spec)

    def _divided_spec(self, spec: Any) -> Any:
        if not _has_rows(spec):
            return spec
        count, rows = len(self.devices), spec.shape[0]
        sizes = [None] * count if rows is None else _count_known_rows(rows, count)
        return values.PerReplicaSpec(
            *(tf.TensorSpec([size, *spec.shape[1:]], spec.dtype) for size in sizes)
        )

    @property
    def _type_spec(self) -> Any:
        return self._spec_type(self.whole._type_spec, self.devices)


class _DividedSpec(tf.TypeSpec):
    def __init__(self, whole_spec: Any, devices: tuple[str, ...]) -> None:
        self._whole_spec, self._devices = whole_spec, devices

    def _serialize(self) -> Any:
        return self._whole_spec, self._devices

    @property
    def _component_specs(self) -> Any:
        return self._whole_spec

    def _to_components(self, value: Any) -> Any:
        return value.whole

    def _from_components(self, components: Any) -> Any:
        return self.value_type(components, self._devices)


class _IteratorSpec(_DividedSpec):
    value_type = property(lambda self: DividedIterator)


class _DatasetSpec(_DividedSpec):
    value_type = property(lambda self: DividedDataset)


class DividedIterator(_DividedData, tf.distribute.DistributedIterator):
    """An iterator of batches that are divided over replicas."""

    _spec_type = _IteratorSpec

    def __iter__(self) -> DividedIterator:
        return self

    def __next__(self) -> Any:
        return self._divide_batch(next(self.whole))

    def get_next(self) -> Any:
        """Return the next batch."""
        return self._divide_batch(self.whole.get_next())

    def get_next_as_optional(self) -> Any:
        """Return the next batch as a `tf.experimental.Optional`."""
        batch = self.whole.get_next_as_optional()
        return tf.cond(
            batch.has_value(),
            lambda: tf.experimental.Optional.from_value(self._divide_batch(batch.get_value())),
            lambda: tf.experimental.Optional.empty(self.element_spec),
        )

    def _divide_batch(self, batch: Any) -> Any:
        return tf.nest.map_structure(self._divide_rows, self.whole.element_spec, batch)

    def _divide_rows(self, spec: Any, value: Any) -> Any:
        if not _has_rows(spec):
            return value
        with tf.device(HOST):
            parts = split_rows(value, len(self.devices))
        return values.PerReplica(
            [_copy_rows(*pair) for pair in zip(parts, self.devices, strict=True)]
        )


def _copy_rows(rows: Any, device: str) -> Any:
    """Copy a replica's rows to its device.

    The tensors of a data set may share the memory of a user's NumPy array, or of `cache`.
    TensorFlow computes in place on a part of such a tensor (`SubBuffer` in TensorFlow 2.21's
    tensor.cc), and the next epoch would train on the results.
    """
    with tf.device(device):
        return tf.raw_ops.DeepCopy(x=rows)


class DividedDataset(_DividedData, input_lib.DistributedDataset):
    """A data set of batches that are divided over replicas.

    The class derives from `DistributedDataset` only because Keras tests for `DistributedDataset`.
    """

    _spec_type = _DatasetSpec

    @property
    def _original_dataset(self) -> tf.data.Dataset:
        return self.whole

    @property
    def cardinality(self) -> Any:
        """The number of batches, as `tf.data.Dataset.cardinality` returns it."""
        return self.whole.cardinality()

    def __iter__(self) -> DividedIterator:
        with tf.device(HOST):
            return DividedIterator(iter(self.whole), self.devices)
