"""A replica's own copy of the variables, without the strategy."""

import contextlib
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib


def flatten_optimizers(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """The optimizer and those inside it."""
    inner = [*getattr(optimizer, "_inner_optimizers", [])]  # MultiOptimizer
    if hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        inner.append(optimizer.inner_optimizer)
    return [optimizer, *(one for part in inner for one in flatten_optimizers(part))]


def replica_index() -> int:
    """Index of the replica that this thread traces."""
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


@contextlib.contextmanager
def replica_local_variables(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> Iterator[None]:
    """Inside, a replica sees only its own copy of the variables, and no strategy.

    What then runs is what Keras runs on one replica: no all-reduce, no merge call. Every other
    replica thread waits meanwhile (TensorFlow resumes one only at a merge call), so swapping
    the values of shared objects is safe.
    """
    replica = replica_index()
    swapped = [*variables, *optimizer.variables]
    values = [variable._value for variable in swapped]
    optimizers = flatten_optimizers(optimizer)
    strategies = [one._distribution_strategy for one in optimizers]
    alone = distribute_lib._get_default_strategy()
    try:
        for variable, value in zip(swapped, values, strict=True):
            if isinstance(value, tf.distribute.DistributedValues):
                variable._value = value.values[replica]
        for one in optimizers:
            one._distribution_strategy = alone
        with tf.distribute.ReplicaContext(alone, 0):
            yield
    finally:
        for variable, value in zip(swapped, values, strict=True):
            variable._value = value
        for one, strategy in zip(optimizers, strategies, strict=True):
            one._distribution_strategy = strategy
