"""The number of rows of a batch on each replica and worker."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.distribute import input_lib, values
from tensorflow.python.ops import resource_variable_ops

from .hooks import StrategyHooks
from .patching import TENSORFLOW, Patch, replaces
from .worker_devices import uses_collectives

_thread = threading.local()


@contextlib.contextmanager
def collect_counts() -> Iterator[list[Any]]:
    """Inside the `with` block, collect the row counts of all replicas; the list may stay empty."""
    counts: list[Any] = []
    _thread.counts = counts
    try:
        yield counts
    finally:
        _thread.counts = None


def count_replicas_with_data(
    strategy: Any, input_workers: Any, optionals: list[list[Any]]
) -> Any | None:
    """Return the number of replicas with data, of all workers; `None` if rows cannot be counted.

    Append a tensor with the number of rows of every replica to the list of `collect_counts`.
    """
    counts = getattr(_thread, "counts", None)
    (local,) = optionals
    if counts is None or _first_component(local[0].element_spec) is None:
        return None
    devices = input_workers.compute_devices_for_worker(0)
    rows, has_values = [], []
    for optional, device in zip(local, devices, strict=True):
        with tf.device(device):
            rows.append(_count_replica_rows(optional))
            has_values.append(tf.cast(optional.has_value(), tf.int64))
    # Replica r of a worker has part r * workers + worker.
    places = [[0] * strategy.workers for _ in rows]
    for parts, number in zip(places, rows, strict=True):
        parts[strategy.worker] = number
    row = tf.stack([number for parts in places for number in parts] + [tf.add_n(has_values)])
    total = tf.reshape(reduce_by_tensorflow(strategy, row), [-1])
    counts.append(total[:-1])
    return total[-1]


def reduce_by_tensorflow(strategy: Any, value: Any) -> Any:
    """Return the sum of a tensor over workers, by TensorFlow's `reduce`, which kdist overrides."""
    return tf.distribute.Strategy.reduce(strategy, tf.distribute.ReduceOp.SUM, value, axis=None)


def attach_counts(data: Any, counts: Any) -> None:
    """Attach the row counts of all replicas to the first part of a batch."""
    leaf = _first_tensor(data)
    if isinstance(leaf, tf.distribute.DistributedValues):
        leaf._kdist_row_counts = counts


def attached_counts(leaf: Any) -> Any | None:
    """Return the row counts that are attached to a part of a batch, an int64 tensor, or `None`."""
    return getattr(leaf, "_kdist_row_counts", None)


def _count_replica_rows(optional: Any) -> Any:
    def count_rows() -> Any:
        return tf.shape(_first_tensor(optional.get_value()), out_type=tf.int64)[0]

    return tf.cond(optional.has_value(), count_rows, lambda: tf.constant(0, tf.int64))


def _first_component(spec: Any) -> Any | None:
    """Return the first part of the data if it is a dense tensor with an unknown number of rows."""
    first = _first_tensor(spec)
    is_dense = isinstance(first, tf.TensorSpec) and first.shape.rank
    return first if is_dense and first.shape[0] is None else None


def _first_tensor(data: Any) -> Any:
    return next((leaf for leaf in keras.tree.flatten(data) if leaf is not None), None)


def count_batch(optionals: list[list[Any]]) -> None:
    """Count a batch as it is read, unless this worker's data are at their end."""
    (local,) = optionals
    with tf.device("/cpu:0"):
        _batch_counter().assign_add(tf.cast(local[0].has_value(), tf.int64))


def batches_read() -> int:
    """Return the number of batches that this worker has read since its start."""
    return int(_batch_counter().numpy())


@functools.cache
def _batch_counter() -> Any:
    """Return the variable that counts the batches this worker has read; it is in no strategy."""
    with tf.init_scope(), tf.device("/cpu:0"):
        return resource_variable_ops.ResourceVariable(
            tf.zeros((), tf.int64), trainable=False, name="kdist_batches_read"
        )


_divided = contextvars.ContextVar("divided", default=False)


def _mark_divided(original: Callable[..., Any], iterator: Any, *args: Any, **options: Any) -> Any:
    """Record that a batch is divided over replicas of kdist."""
    token = _divided.set(isinstance(iterator._strategy, StrategyHooks))
    try:
        return original(iterator, *args, **options)
    finally:
        _divided.reset(token)


_WHY = "Crashes if a replica gets no rows of a sparse batch."
_ROW_TEST = "test_an_iterator_asks_for_data_but_not_for_rows"


@replaces(
    tf.SparseTensorSpec,
    "_from_compatible_tensor_list",
    why=_WHY,
    test="test_a_replica_without_sparse_rows_crashes",
    seen_in=TENSORFLOW,
)
def _from_tensors(original: Callable[..., Any], spec: Any, tensors: Any) -> Any:
    """Deserialize an empty part as a tensor without rows."""
    if not _divided.get() or not spec.shape.rank:
        return original(spec, tensors)
    (serialized,) = tensors

    def no_rows() -> Any:
        # An unknown size is 0, as in TensorFlow's tensors without rows.
        shape = [0, *(size or 0 for size in spec.shape[1:])]
        return tf.raw_ops.SerializeSparse(
            sparse_indices=tf.zeros((0, len(shape)), tf.int64),
            sparse_values=tf.zeros((0,), spec.dtype),
            sparse_shape=tf.constant(shape, tf.int64),
            out_type=tf.variant,
        )

    return original(spec, [tf.cond(tf.size(serialized) > 0, lambda: serialized, no_rows)])


@replaces(
    input_lib,
    "_create_distributed_tensor_spec",
    why="Assumes one part of a batch per device.",
    test="test_a_batch_has_a_part_for_each_device",
    seen_in=TENSORFLOW,
)
def _part_specs(original: Callable[..., Any], strategy: Any, spec: Any) -> Any:
    """Return the specs of a batch's parts: a part per shard, as shards may share a device."""
    extended = strategy.extended
    if not isinstance(strategy, StrategyHooks):
        return original(strategy, spec)
    count = len(extended.shard_devices)
    if count == 1 and not extended._in_multi_worker_mode():
        return spec
    return tf.nest.map_structure(lambda part: values.PerReplicaSpec(*[part] * count), spec)


@replaces(
    input_lib.DistributedIteratorBase,
    "get_next",
    why="Asks all workers whether there is data, but not how many rows.",
    test=_ROW_TEST,
    seen_in=TENSORFLOW,
)
def _get_next(original: Callable[..., Any], iterator: Any, name: Any = None) -> Any:
    """Attach the number of rows of each replica to a step's batch."""
    strategy = iterator._strategy
    is_counted = uses_collectives(strategy) and strategy.workers > 1 and not iterator._replica_order
    if tf.executing_eagerly() or not is_counted:
        return original(iterator, name)
    with collect_counts() as counts:
        data = original(iterator, name)
    if counts:
        attach_counts(data, counts[0])
    return data


@replaces(
    input_lib,
    "_calculate_replicas_with_values",
    why="Asks all workers whether there is data, but not how many rows.",
    test=_ROW_TEST,
    seen_in=TENSORFLOW,
)
def _replicas_with_values(
    original: Callable[..., Any], strategy: Any, input_workers: Any, optional_list: Any
) -> Any:
    """Count the rows of each replica in the same collective, and this worker's batches."""
    if not (uses_collectives(strategy) and strategy.workers > 1):
        return original(strategy, input_workers, optional_list)
    count_batch(optional_list)
    counted = count_replicas_with_data(strategy, input_workers, optional_list)
    if counted is not None:
        return counted
    has_values = [tf.cast(optional.has_value(), tf.int64) for optional in optional_list[0]]
    return tf.reshape(reduce_by_tensorflow(strategy, tf.add_n(has_values)), [])


PATCHES = (_part_specs,)

WORKER_PATCHES = (
    *(
        Patch(
            owner=input_lib.DistributedIteratorBase,
            name=name,
            replacement=_mark_divided,
            why=_WHY,
            test="test_a_replica_without_sparse_rows_crashes",
            seen_in=TENSORFLOW,
        )
        for name in ("get_next", "get_next_as_optional")
    ),
    _from_tensors,
    _get_next,
    _replicas_with_values,
)
