"""Run code on a replica's local copies of variables, without a strategy."""

import contextlib
from collections.abc import Iterable, Iterator

import keras
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib


def flatten_optimizers(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and those inside it."""
    inner = [*getattr(optimizer, "_inner_optimizers", [])]  # MultiOptimizer
    if hasattr(optimizer, "inner_optimizer"):  # LossScaleOptimizer
        inner.append(optimizer.inner_optimizer)
    return [optimizer, *(one for part in inner for one in flatten_optimizers(part))]


def replica_index() -> int:
    """Return the index of the current replica among those of this worker."""
    context = tf.distribute.get_replica_context()
    index = int(tf.get_static_value(context.replica_id_in_sync_group))
    return int(context.strategy.extended._get_local_replica_id(index))


@contextlib.contextmanager
def replica_local_variables(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> Iterator[None]:
    """Use only the replica's local copies of the variables, and no strategy, in the `with` block.

    Keras then does what it does on one replica: no all-reduce, no merge call. The threads of the
    other replicas wait in the meantime (TensorFlow resumes them only at a merge call), so it is
    safe to swap the values of shared objects.
    """
    replica = replica_index()
    swapped = [*variables, *optimizer.variables]
    values = [variable._value for variable in swapped]
    optimizers = flatten_optimizers(optimizer)
    strategies = [one._distribution_strategy for one in optimizers]
    default_strategy = distribute_lib._get_default_strategy()
    try:
        for variable, value in zip(swapped, values, strict=True):
            if isinstance(value, tf.distribute.DistributedValues):
                variable._value = value.values[replica]
        for one in optimizers:
            one._distribution_strategy = default_strategy
        with tf.distribute.ReplicaContext(default_strategy, 0):
            yield
    finally:
        for variable, value in zip(swapped, values, strict=True):
            variable._value = value
        for one, strategy in zip(optimizers, strategies, strict=True):
            one._distribution_strategy = strategy
