"""Patch the collectives of a step of several workers: their keys, their order, and small ones."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher
from tensorflow.python.ops import resource_variable_ops

from ..collective_keys import has_static_keys, is_tracing_step, static_shape
from ..patching import TENSORFLOW, Patch

_thread = threading.local()
_TOKENS = 8  # of buckets that may be under way together

# From this size a sum is one of gradients: nothing waits for it but the optimizer.
_BUCKET_BYTES = 16 * 1024
# What an all-reduce of the ring may take longer for a message of this size to be sent twice.
_SMALL_BYTES = 64 * 1024


def _all_reduce(
    original: Callable[..., Any],
    launcher: Any,
    value: Any,
    control_input: Any = None,
    options: Any = None,
) -> Any:
    """Sum small values by one gather, which takes half as many messages as a ring's all-reduce.

    The sum is that of the replicas in their order, bit for bit the same on each.
    """
    is_static = value.shape.is_fully_defined()
    size = value.shape.num_elements() * value.dtype.size if is_static else 0
    _thread.is_bucket = size >= _BUCKET_BYTES
    try:
        with static_shape(is_static):
            if not (has_static_keys() and _is_gathered_sooner(launcher, size, value.dtype)):
                return original(launcher, value, control_input, options)
        rows = launcher._all_gather(value[None], options)
    finally:
        _thread.is_bucket = False
    rows = tf.ensure_shape(rows, [launcher._group_size, *value.shape])
    return tf.add_n(tf.unstack(rows))


def _is_gathered_sooner(launcher: Any, size: int, dtype: tf.DType) -> bool:
    """Whether a gather is sooner than a ring's all-reduce.

    Of n replicas and b bytes, the ring sends 2 (n - 1) messages of b / n bytes one after another, a
    gather n - 1 messages of b bytes.
    """
    replicas = launcher._group_size
    # CollectiveGather knows fewer dtypes, of which those of `_gather` are the most used.
    known = dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bfloat16, tf.float16)
    is_small = size * (replicas - 2) <= _SMALL_BYTES * replicas
    return known and is_small and _is_of_cpu(launcher) and replicas > 1


def _gather(original: Callable[..., Any], launcher: Any, value: Any, options: Any) -> Any:
    """Fix the key of a collective whose shape is fixed, too: TensorFlow keeps one for each key.

    TensorFlow gathers no bfloat16, of which float16 has the size.
    """
    with static_shape(value.shape.is_fully_defined()):
        if value.dtype != tf.bfloat16:
            return original(launcher, value, options)
        rows = original(launcher, tf.bitcast(value, tf.float16), options)
        return tf.bitcast(rows, tf.bfloat16)


def _use_unique_key(original: Callable[..., bool], launcher: Any) -> bool:
    return not has_static_keys() and original(launcher)


def _ordering_token(original: Callable[..., Any], launcher: Any) -> Any:
    """Let a bucket of gradients run as soon as it is full, while others are computed.

    The token orders the collectives that share it, and keeps TensorFlow from removing one whose
    result is unused on one replica. So a bucket gets one of its own. NCCL needs one order on all
    workers, while the collectives of CPUs find each other by their keys.
    """
    is_bucket = getattr(_thread, "is_bucket", False) and is_tracing_step()
    if not is_bucket or tf.executing_eagerly() or not _is_of_cpu(launcher):
        return original(launcher)
    if not hasattr(launcher, "_kdist_tokens"):
        with tf.init_scope(), tf.device(launcher._device):
            tokens = [resource_variable_ops.ResourceVariable(0.0) for _ in range(_TOKENS)]
        launcher._kdist_tokens = itertools.cycle(tokens)
    return next(launcher._kdist_tokens).handle


def _is_of_cpu(launcher: Any) -> bool:
    return bool(tf.DeviceSpec.from_string(launcher._device).device_type == "CPU")


_KEYS = "test_collectives_take_their_keys_when_the_step_is_called"

PATCHES = (
    Patch(
        owner=CollectiveReplicaLauncher,
        name="_use_unique_instance_key",
        replacement=_use_unique_key,
        why="The collectives of a step get new keys at every call, each of them an input of the"
        " step.",
        canary=_KEYS,
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=CollectiveReplicaLauncher,
        name="all_reduce",
        replacement=_all_reduce,
        why="Does not say whether the shape of a collective's values is fixed, and sends even a few"
        " numbers around the ring of workers twice.",
        canary="test_a_small_sum_is_an_all_reduce_in_order",
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=CollectiveReplicaLauncher,
        name="_all_gather",
        replacement=_gather,
        why="Does not say whether the shape of a collective's values is fixed.",
        canary=_KEYS,
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=CollectiveReplicaLauncher,
        name="_get_ordering_token",
        replacement=_ordering_token,
        why="Runs a step's collectives one after another, so that gradients are sent only after"
        " the backward pass.",
        canary="test_a_small_sum_is_an_all_reduce_in_order",
        seen_in=TENSORFLOW,
    ),
)
