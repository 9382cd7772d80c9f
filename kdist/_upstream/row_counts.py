"""Count the rows of all replicas, as an iterator asks whether any worker has data."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

_thread = threading.local()


@contextlib.contextmanager
def counting() -> Iterator[list[Any]]:
    """Collect in a list what `count` counts in the `with` block: one tensor, or nothing."""
    counts: list[Any] = []
    _thread.counts = counts
    try:
        yield counts
    finally:
        _thread.counts = None


def count(strategy: Any, input_workers: Any, optionals: list[list[Any]]) -> Any | None:
    """Return the number of replicas with data, of all workers; `None` if rows cannot be counted.

    Args:
        strategy: A `MultiWorkerMirroredStrategy` of kdist.
        input_workers: TensorFlow's `InputWorkers`.
        optionals: For each replica of this worker, the data that it may have.
    """
    counts = getattr(_thread, "counts", None)
    (local,) = optionals
    if counts is None or _first_component(local[0].element_spec) is None:
        return None
    devices = input_workers.compute_devices_for_worker(0)
    rows, has_values = [], []
    for optional, device in zip(local, devices, strict=True):
        with tf.device(device):
            rows.append(_rows(optional))
            has_values.append(tf.cast(optional.has_value(), tf.int64))
    # Replica r of a worker has part r * workers + worker, see `worker_devices.replica_place`.
    places = [[0] * strategy.workers for _ in rows]
    for parts, number in zip(places, rows, strict=True):
        parts[strategy.worker] = number
    row = tf.stack([one for parts in places for one in parts] + [tf.add_n(has_values)])
    total = tf.reshape(sum_of_workers(strategy, row), [-1])
    counts.append(total[:-1])
    return total[-1]


def sum_of_workers(strategy: Any, value: Any) -> Any:
    """Return the sum of a tensor over workers, whatever `reduce` of their strategy does."""
    return tf.distribute.Strategy.reduce(strategy, tf.distribute.ReduceOp.SUM, value, axis=None)


def attach_counts(data: Any, counts: Any) -> None:
    """Attach the counts of all replicas to the first part of a batch, whose rows they are."""
    leaf = _first(data)
    if isinstance(leaf, tf.distribute.DistributedValues):
        leaf._kdist_row_counts = counts


def attached_counts(leaf: Any) -> Any | None:
    """Return the counts that are attached to a part of a batch, an int64 tensor."""
    return getattr(leaf, "_kdist_row_counts", None)


def _rows(optional: Any) -> Any:
    def count_rows() -> Any:
        return tf.shape(_first(optional.get_value()), out_type=tf.int64)[0]

    return tf.cond(optional.has_value(), count_rows, lambda: tf.constant(0, tf.int64))


def _first_component(spec: Any) -> Any | None:
    """Return the first part of the data if it is a dense tensor with any number of rows."""
    first = _first(spec)
    is_dense = isinstance(first, tf.TensorSpec) and first.shape.rank
    return first if is_dense and first.shape[0] is None else None


def _first(data: Any) -> Any:
    return next((leaf for leaf in keras.tree.flatten(data) if leaf is not None), None)
