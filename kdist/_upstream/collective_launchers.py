"""TensorFlow's collectives, on GPUs and over workers: their keys, their order, and small ones.

TensorFlow gives every collective a new key each time it runs, an input of the step's function,
which has no value in the loop of `steps_per_execution`. A key that is fixed when the step is traced
has, and costs less, but has to belong to values of one shape.
"""

import contextlib
import functools
import itertools
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher
from tensorflow.python.ops import resource_variable_ops

# The groups of two strategies of a process must not meet. Those of one process are numbered apart,
# as workers have to count alike, whatever else one of them makes, and from a number of its own.
_bases = itertools.count(step=1000)
_local_bases = itertools.count(2**30 + 1000 * secrets.randbelow(2**20), step=1000)
_steps = 0  # that are being traced with fixed keys
_TOKENS = 8  # of buckets that may be under way together

# From this size a sum is one of gradients: nothing waits for it but the optimizer.
_GRADIENT_BYTES = 16 * 1024
# What an all-reduce of the ring may take longer for a message of this size to be sent twice.
_SMALL_BYTES = 64 * 1024


@contextlib.contextmanager
def static_keys() -> Iterator[None]:
    """Inside the `with` block, keys may be fixed: all workers trace the same step."""
    global _steps
    _steps += 1
    try:
        yield
    finally:
        _steps -= 1


def is_tracing_step() -> bool:
    """Whether a step is traced, the same on all workers."""
    return _steps > 0


def set_key_base(strategy: Any, *, is_local: bool) -> None:
    """Number a strategy's groups apart from those of others, before TensorFlow makes them.

    Args:
        strategy: The strategy.
        is_local: Whether all its replicas are in this process.
    """
    strategy._collective_key_base = next(_local_bases if is_local else _bases)


def set_launchers(cross_device_ops: Any) -> None:
    """Let TensorFlow's `CollectiveAllReduce` send by launchers of ours."""
    cross_device_ops._launchers = [
        Launcher(
            one._group_key,
            one._group_size,
            one._collective_keys,
            one._device,
            one._options,
            is_local=one._group_size == len(cross_device_ops._launchers),
        )
        for one in cross_device_ops._launchers
    ]


class Launcher(CollectiveReplicaLauncher):
    """Makes the collectives of one replica; `is_local` if all replicas are in this process."""

    def __init__(self, *args: Any, is_local: bool) -> None:
        super().__init__(*args)
        self._is_local = is_local
        self._thread = threading.local()
        self._is_of_cpu = tf.DeviceSpec.from_string(self._device).device_type == "CPU"

    @functools.cached_property
    def _tokens(self) -> Iterator[Any]:
        with tf.init_scope(), tf.device(self._device):
            tokens = [resource_variable_ops.ResourceVariable(0.0) for _ in range(_TOKENS)]
        return itertools.cycle(tokens)

    def all_reduce(self, input_tensor: Any, control_input: Any = None, options: Any = None) -> Any:
        """Sum small values by one gather, which takes half as many messages as a ring's all-reduce.

        The sum is that of the replicas in their order, bit for bit the same on each.
        """
        value = input_tensor
        is_static = value.shape.is_fully_defined()
        size = value.shape.num_elements() * value.dtype.size if is_static else 0
        if is_static and is_tracing_step() and self._is_gathered_sooner(size, value.dtype):
            rows = self._all_gather(tf.expand_dims(value, 0), options)
            rows = tf.ensure_shape(rows, [self._group_size, *value.shape])
            return tf.add_n(tf.unstack(rows))
        with self._made(is_static, is_bucket=size >= _GRADIENT_BYTES):
            return super().all_reduce(value, control_input, options)

    def _all_gather(self, input_tensor: Any, options: Any) -> Any:
        """Gather bfloat16, too, of which float16 has the size."""
        sent = input_tensor
        if sent.dtype == tf.bfloat16:
            sent = tf.bitcast(sent, tf.float16)
        with self._made(sent.shape.is_fully_defined()):
            rows = super()._all_gather(sent, options)
        return rows if rows.dtype == input_tensor.dtype else tf.bitcast(rows, tf.bfloat16)

    def _is_gathered_sooner(self, size: int, dtype: tf.DType) -> bool:
        """Whether a gather is sooner than a ring's all-reduce.

        Of n replicas and b bytes, the ring sends 2 (n - 1) messages of b / n bytes one after
        another, a gather n - 1 messages of b bytes.
        """
        replicas = self._group_size
        # CollectiveGather knows fewer dtypes, of which those of `_all_gather` are the most used.
        known = dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bfloat16, tf.float16)
        is_small = size * (replicas - 2) <= _SMALL_BYTES * replicas
        return known and is_small and self._is_of_cpu and replicas > 1

    @contextlib.contextmanager
    def _made(self, is_static: bool, is_bucket: bool = False) -> Iterator[None]:
        """Inside the `with` block, a collective is made: of values of a fixed shape, or gradients.

        TensorFlow keeps a collective for each key, so that of a fixed shape has a fixed key.
        """
        self._thread.is_static, self._thread.is_bucket = is_static, is_bucket
        try:
            yield
        finally:
            self._thread.is_static = self._thread.is_bucket = False

    def _use_unique_instance_key(self) -> bool:
        is_alike = self._is_local or is_tracing_step()
        has_fixed_key = is_alike and getattr(self._thread, "is_static", False)
        return not has_fixed_key and bool(super()._use_unique_instance_key())

    def _get_ordering_token(self) -> Any:
        """Let a bucket of gradients run as soon as it is full, while others are computed.

        The token orders the collectives that share it, and keeps TensorFlow from removing one whose
        result is unused on one replica. So a bucket gets one of its own. NCCL needs one order on
        all workers, while the collectives of CPUs find each other by their keys.
        """
        is_bucket = getattr(self._thread, "is_bucket", False) and is_tracing_step()
        if not is_bucket or tf.executing_eagerly() or not self._is_of_cpu:
            return super()._get_ordering_token()
        return next(self._tokens).handle
