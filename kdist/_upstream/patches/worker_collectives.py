"""Patch the collectives of a step of several workers: their keys, their order, and small ones."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher

from ..collective_keys import has_static_keys, is_tracing_step, static_shape
from ..patching import TENSORFLOW, Patch

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
    with static_shape(value.shape.is_fully_defined()):
        if not (has_static_keys() and _is_gathered_sooner(launcher, value)):
            return original(launcher, value, control_input, options)
    rows = launcher._all_gather(value[None], options)
    rows = tf.ensure_shape(rows, [launcher._group_size, *value.shape])
    return tf.add_n(tf.unstack(rows))


def _is_gathered_sooner(launcher: Any, value: Any) -> bool:
    """Whether a gather is sooner than a ring's all-reduce.

    Of n replicas and b bytes, the ring sends 2 (n - 1) messages of b / n bytes one after another, a
    gather n - 1 messages of b bytes.
    """
    size, replicas = value.shape.num_elements() * value.dtype.size, launcher._group_size
    # CollectiveGather knows fewer dtypes, of which those of `_gather` are the most used.
    known = value.dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bfloat16, tf.float16)
    is_small = size * (replicas - 2) <= _SMALL_BYTES * replicas
    return known and is_small and _is_unordered(launcher) and replicas > 1


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
    """Let collectives of a step run as soon as their values are there.

    So gradients are sent while others are computed. NCCL needs one order on all workers.
    """
    if is_tracing_step() and not tf.executing_eagerly() and _is_unordered(launcher):
        return None
    return original(launcher)


def _is_unordered(launcher: Any) -> bool:
    """Whether collectives may run in any order: those of CPUs find each other by their keys."""
    return tf.DeviceSpec.from_string(launcher._device).device_type == "CPU"


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
        why="Does not say whether the shape of a collective's values is fixed, and sends a few"
        " numbers around a ring twice.",
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
        why="A step's collectives wait for each other, so that gradients are sent after the"
        " backward pass.",
        canary="test_a_small_sum_is_an_all_reduce_in_order",
        seen_in=TENSORFLOW,
    ),
)
