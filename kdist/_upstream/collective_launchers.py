"""TensorFlow's collectives, on GPUs and over workers: their keys, their order, and small sums.

TensorFlow gives every collective a new key each time it runs. The key is an input of the step's
function, and has no value in the loop of `steps_per_execution`. A key that is fixed when the step
is traced has a value, and costs less, but has to belong to values of a single shape.
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

from .ordered_sum import add_in_order

# The groups of two strategies of a process must not have the same key. All workers have to count
# alike, even if a worker also makes strategies of its process alone. So such strategies count
# separately, from a random number of the process.
_bases = itertools.count(step=1000)
_local_bases = itertools.count(2**30 + 1000 * secrets.randbelow(2**20), step=1000)
_steps = 0  # number of steps that are being traced with fixed keys
_TOKENS = 8  # number of buckets that may run together

# From this size a value is a bucket of gradients: only the optimizer waits for its sum.
_GRADIENT_BYTES = 16 * 1024
# The latency of a message, in bytes that could be sent in the same time.
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
    """Whether a step is traced that is the same on all workers."""
    return _steps > 0


def set_key_base(strategy: Any, *, is_local: bool) -> None:
    """Give a strategy's groups their own numbers, before TensorFlow makes the groups."""
    strategy._collective_key_base = next(_local_bases if is_local else _bases)


def set_launchers(cross_device_ops: Any) -> None:
    """Replace the launchers of TensorFlow's `CollectiveAllReduce` by `Launcher` objects."""
    cross_device_ops._launchers = [
        Launcher(
            launcher._group_key,
            launcher._group_size,
            launcher._collective_keys,
            launcher._device,
            launcher._options,
            is_local=launcher._group_size == len(cross_device_ops._launchers),
        )
        for launcher in cross_device_ops._launchers
    ]


class Launcher(CollectiveReplicaLauncher):
    """Makes the collectives of a replica; `is_local` if all replicas are in this process."""

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
        """Sum small values by a gather: it takes half as many messages as a ring's all-reduce.

        The sum adds the replicas in their order: it has the same bits on every replica.
        """
        value = input_tensor
        is_static = value.shape.is_fully_defined()
        size = value.shape.num_elements() * value.dtype.size if is_static else 0
        if is_static and is_tracing_step() and self._is_gathered_sooner(size, value.dtype):
            rows = self._all_gather(tf.expand_dims(value, 0), options)
            rows = tf.ensure_shape(rows, [self._group_size, *value.shape])
            return add_in_order(tf.unstack(rows))
        with self._making(is_static, is_bucket=size >= _GRADIENT_BYTES):
            return super().all_reduce(value, control_input, options)

    def _all_gather(self, input_tensor: Any, options: Any) -> Any:
        """Gather bfloat16, too, as float16: both have the same size."""
        sent = input_tensor
        if sent.dtype == tf.bfloat16:
            sent = tf.bitcast(sent, tf.float16)
        with self._making(sent.shape.is_fully_defined()):
            rows = super()._all_gather(sent, options)
        return rows if rows.dtype == input_tensor.dtype else tf.bitcast(rows, tf.bfloat16)

    def _is_gathered_sooner(self, size: int, dtype: tf.DType) -> bool:
        """Whether a gather is faster than a ring's all-reduce.

        For n replicas and b bytes, the ring sends 2 (n - 1) messages of b / n bytes in sequence;
        a gather sends n - 1 messages of b bytes.
        """
        replicas = self._group_size
        # CollectiveGather supports fewer dtypes. The most used are here; `_all_gather` casts
        # bfloat16.
        known = dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bfloat16, tf.float16)
        is_small = size * (replicas - 2) <= _SMALL_BYTES * replicas
        return known and is_small and self._is_of_cpu and replicas > 1

    @contextlib.contextmanager
    def _making(self, is_static: bool, is_bucket: bool = False) -> Iterator[None]:
        """Inside the `with` block, a collective is made, of a fixed shape or a bucket of gradients.

        TensorFlow keeps a collective for each key, so a collective of a fixed shape has a fixed
        key.
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
        """Let a bucket of gradients run as soon as it is full, while later gradients are computed.

        A token orders the collectives that share it. It also keeps TensorFlow from removing a
        collective if a replica does not use the result. So a bucket on CPUs gets the next of
        several tokens: the collectives of CPUs find each other by their keys. NCCL needs the same
        order on all workers.
        """
        is_bucket = getattr(self._thread, "is_bucket", False) and is_tracing_step()
        if not is_bucket or tf.executing_eagerly() or not self._is_of_cpu:
            return super()._get_ordering_token()
        return next(self._tokens).handle
