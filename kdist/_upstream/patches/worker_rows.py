"""Patch the iterators of several workers, which ask whether any worker has data left."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib

from ..batch_count import count_batch
from ..patching import TENSORFLOW, Patch
from ..row_counts import attach_counts, count, counting, sum_of_workers
from ..worker_devices import uses_collectives


def _get_next(original: Callable[..., Any], iterator: Any, name: Any = None) -> Any:
    """Attach the number of rows of each replica to a step's batch."""
    strategy = iterator._strategy
    is_counted = uses_collectives(strategy) and strategy.workers > 1 and not iterator._replica_order
    if tf.executing_eagerly() or not is_counted:
        return original(iterator, name)
    with counting() as counts:
        data = original(iterator, name)
    if counts:
        attach_counts(data, counts[0])
    return data


def _replicas_with_values(
    original: Callable[..., Any], strategy: Any, input_workers: Any, optional_list: Any
) -> Any:
    """Count the rows of each replica in the same collective, and this worker's batches."""
    if not (uses_collectives(strategy) and strategy.workers > 1):
        return original(strategy, input_workers, optional_list)
    count_batch(optional_list)
    counted = count(strategy, input_workers, optional_list)
    if counted is not None:
        return counted
    has_values = [tf.cast(one.has_value(), tf.int64) for one in optional_list[0]]
    return tf.reshape(sum_of_workers(strategy, tf.add_n(has_values)), [])


_CANARY = "test_an_iterator_asks_for_data_but_not_for_rows"

PATCHES = (
    Patch(
        owner=input_lib.DistributedIteratorBase,
        name="get_next",
        replacement=_get_next,
        why="Asks all workers whether there is data, but not how many rows.",
        canary=_CANARY,
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=input_lib,
        name="_calculate_replicas_with_values",
        replacement=_replicas_with_values,
        why="Asks all workers whether there is data, but not how many rows.",
        canary=_CANARY,
        seen_in=TENSORFLOW,
    ),
)
