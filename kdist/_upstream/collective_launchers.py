"""TensorFlow's collectives, on GPUs and over workers: their keys, their order, and small sums.

TensorFlow gives every collective a new key each time it runs. The key is an input of the step's
function, which TensorFlow does not fill in inside a loop, as for `steps_per_execution`. A key that
is fixed when the step is traced works in a loop, and costs less, but serves a single shape.
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

from .add_in_order import add_in_order

# Two strategies of a process must not have groups with the same key, and all workers have to number
# their groups in the same way. Strategies that only one process uses therefore take numbers from
# their own range, which begins at a random number.
_bases = itertools.count(step=1000)
_local_bases = itertools.count(2**30 + 1000 * secrets.randbelow(2**20), step=1000)
_traced_steps = 0  # number of steps that are being traced with fixed keys
_TOKENS = 8  # number of buckets that may run together

# From this size a value is a bucket of gradients: only the optimizer waits for its sum.
_GRADIENT_BYTES = 16 * 1024
# The latency of a message, in bytes that could be sent in the same time.
_SMALL_BYTES = 64 * 1024


@contextlib.contextmanager
def static_keys() -> Iterator[None]:
    """Inside the `with` block, keys may be fixed, because all workers trace the same step."""
    global _traced_steps
    _traced_steps += 1
    try:
        yield
    finally:
        _traced_steps -= 1


def is_tracing_step() -> bool:
    """Whether a step is traced that is the same on all workers."""
    return _traced_steps > 0


def set_key_base(strategy: Any, *, is_local: bool) -> None:
    """Set the first key of a strategy's groups, before TensorFlow creates the groups."""
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
    """Creates the collectives of a replica; `is_local` if all replicas are in this process."""

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
        """Sum small values by a gather, with half as many messages as a ring's all-reduce.

        The replicas' values are added in order, so the sum has the same bits on every replica.
        """
        value = input_tensor
        is_static = value.shape.is_fully_defined()
        size = value.shape.num_elements() * value.dtype.size if is_static else 0
        if is_static and is_tracing_step() and self._is_gathered_sooner(size, value.dtype):
            rows = self._all_gather(tf.expand_dims(value, 0), options)
            rows = tf.ensure_shape(rows, [self._group_size, *value.shape])
            return add_in_order(tf.unstack(rows))
        with self._mark_collective(is_static, is_bucket=size >= _GRADIENT_BYTES):
            return super().all_reduce(value, control_input, options)

    def _all_gather(self, input_tensor: Any, options: Any) -> Any:
        """Gather values; bfloat16 is sent as float16, which has the same size."""
        sent = input_tensor
        if sent.dtype == tf.bfloat16:
            sent = tf.bitcast(sent, tf.float16)
        with self._mark_collective(sent.shape.is_fully_defined()):
            rows = super()._all_gather(sent, options)
        return rows if rows.dtype == input_tensor.dtype else tf.bitcast(rows, tf.bfloat16)

    def _is_gathered_sooner(self, size: int, dtype: tf.DType) -> bool:
        """Whether a gather is faster than a ring's all-reduce.

        For n replicas and b bytes, the ring sends 2 (n - 1) messages of b / n bytes in sequence;
        a gather sends n - 1 messages of b bytes.
        """
        replicas = self._group_size
        # Dtypes that CollectiveGather supports; `_all_gather` casts bfloat16.
        has_gather = dtype in (tf.float32, tf.float64, tf.int32, tf.int64, tf.bfloat16, tf.float16)
        is_small = size * (replicas - 2) <= _SMALL_BYTES * replicas
        return has_gather and is_small and self._is_of_cpu and replicas > 1

    @contextlib.contextmanager
    def _mark_collective(self, is_static: bool, is_bucket: bool = False) -> Iterator[None]:
        """Set properties of the collective that TensorFlow creates inside the `with` block.

        TensorFlow keeps a collective for each key, so only a collective of a fixed shape
        (`is_static`) has a fixed key. `is_bucket` is whether gradients of a bucket are summed.
        """
        self._thread.is_static, self._thread.is_bucket = is_static, is_bucket
        try:
            yield
        finally:
            self._thread.is_static = self._thread.is_bucket = False

    def _use_unique_instance_key(self) -> bool:
        is_same_on_workers = self._is_local or is_tracing_step()
        has_fixed_key = is_same_on_workers and getattr(self._thread, "is_static", False)
        return not has_fixed_key and bool(super()._use_unique_instance_key())

    def _get_ordering_token(self) -> Any:
        """Let a bucket of gradients run as soon as it is full, while later gradients are computed.

        Collectives that share a token run in order. A token also keeps TensorFlow from removing a
        collective if a replica does not use the result. A bucket on CPUs gets the next of several
        tokens, because the collectives of CPUs find each other by their keys. NCCL needs the same
        order on all workers.
        """
        is_bucket = getattr(self._thread, "is_bucket", False) and is_tracing_step()
        if not is_bucket or tf.executing_eagerly() or not self._is_of_cpu:
            return super()._get_ordering_token()
        return next(self._tokens).handle
