"""Other random draws on every replica."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.random.seed_generator import SeedGenerator

from .replacing import replace

# Keeps the seeds of replicas apart (2^32 divided by the golden ratio: multiples spread evenly).
_SEED_STRIDE = 0x9E3779B9


@replace(SeedGenerator, "next")
def _next_seed(original: Callable[..., Any], generator: Any, ordered: bool = True) -> Any:
    """Another seed on every replica: Keras draws the same dropout mask on all."""
    seed = original(generator, ordered)
    context = tf.distribute.get_replica_context()
    if context is None or not hasattr(context.strategy, "draws_differ"):
        return seed
    replica = tf.cast(context.replica_id_in_sync_group, "uint32")
    offset = tf.stack([replica * tf.constant(_SEED_STRIDE, "uint32"), tf.constant(0, "uint32")])
    return seed + tf.cast(offset, seed.dtype)
