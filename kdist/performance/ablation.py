"""Remove a part of the training step, to measure how long that part takes.

A model trained this way is useless: its replicas drift apart, or it sees only one batch.
"""

from typing import Any

import tensorflow as tf


class SkipAllReduce(tf.distribute.ReductionToOneDevice):
    """Skips sums over replicas within a step: every replica keeps its own value.

    Values that are reduced elsewhere, such as a metric that the host reads, are still reduced.
    """

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        """Return `per_replica_value` unchanged if it would stay on the same devices."""
        if destinations is per_replica_value:
            return per_replica_value
        return super().reduce_implementation(reduce_op, per_replica_value, destinations, options)


def repeat_first_batch(batches: Any) -> Any:
    """Repeat the first batch instead of shuffling, gathering and augmenting new ones.

    Args:
        batches: A `tf.data.Dataset` whose number of batches is known.
    """
    steps = batches.cardinality()
    return batches.take(1).cache().repeat(steps).with_options(batches.options())


def repeat_first_rows(arrays: Any, *, batch: int, steps: int) -> tf.data.Dataset:
    """Repeat the first batch of arrays instead of shuffling and gathering new ones.

    Args:
        arrays: Arrays (x, y) or (x, y, sample_weight), each perhaps a structure of arrays.
        batch: Samples per batch.
        steps: Number of batches.
    """
    rows = tf.nest.map_structure(lambda array: tf.convert_to_tensor(array[:batch]), arrays)
    return tf.data.Dataset.from_tensors(rows).cache().repeat(steps)
