"""A training step with a part left out, to measure what that part takes.

What is trained this way is no use: its replicas drift apart, or see one batch over and over.
"""

from typing import Any

import tensorflow as tf

PARTS = ("collectives", "input")


class NoCollectives(tf.distribute.ReductionToOneDevice):
    """Leaves every replica its own value where a step sums over replicas.

    What is asked for elsewhere, such as a metric that the host reads, is still reduced.
    """

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        """Return `per_replica_value` where it is to be reduced to where it is."""
        if destinations is per_replica_value:
            return per_replica_value
        return super().reduce_implementation(reduce_op, per_replica_value, destinations, options)


def same_batch_again(batches: Any) -> Any:
    """As many batches, all of them the first: nothing is shuffled, gathered or augmented.

    Args:
        batches: A `tf.data.Dataset` whose number of batches is known.
    """
    steps = batches.cardinality()
    return batches.take(1).cache().repeat(steps).with_options(batches.options())
