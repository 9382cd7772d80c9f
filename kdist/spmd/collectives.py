"""Exchanges of values between replicas: sums, in buckets, and gathers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

from .._upstream.add_in_order import add_in_order
from ..errors import UserError
from .buckets import BUCKET_BYTES, choose_buckets, fill_buckets, split_bucket
from .functions import functions_are_traced

HOST = "/device:CPU:0"


@dataclass(frozen=True)
class ExchangedRows:
    """A tensor that is exchanged: the rows are gathered, or a sum is scattered.

    Args:
        parts: The values of this worker's replicas: rows to be gathered, or tensors to be added up.
        shape: The shape of the whole tensor; fully known, except where a sum is scattered.
        axis: The divided axis.
        sizes: The numbers of rows of all replicas; for a sum of an unknown shape, a vector.
    """

    parts: Sequence[Any]
    shape: Sequence[int]
    axis: int
    sizes: Any

    def _shape_of(self, place: int) -> list[int]:
        shape = list(self.shape)
        shape[self.axis] = self.sizes[place]
        return shape

    @property
    def padded_size(self) -> int:
        """The number of elements of the largest part."""
        return math.prod(self.shape) // self.shape[self.axis] * int(max(self.sizes))

    def to_vector(self, rows: Any, place: int) -> Any:
        """Return a replica's rows as a vector, padded to the length of the largest part."""
        flat = tf.reshape(rows, [math.prod(self._shape_of(place))])
        return tf.pad(flat, [[0, self.padded_size - flat.shape[0]]])

    def from_vector(self, vector: Any, place: int) -> Any:
        """Return a replica's rows from the vector."""
        shape = self._shape_of(place)
        return tf.reshape(vector[: math.prod(shape)], shape)


class Collectives:
    """The exchanges of the replicas of one machine.

    On GPUs TensorFlow's collectives compute the sums; the collectives are made by
    `kdist._upstream.collective_launchers.Launcher`. Without `cross_device_ops`, the first device
    adds up the tensors.

    A replica here is a part of the batch. With `shards=`, several parts share a device and its
    variables, and `devices` names that device for each of them.

    Attributes:
        replicas: The number of parts, over all workers.
        places: For each device, the index of its replica in the order of the batch's rows.
        bucket_bytes: Size of a bucket of gradients. A full bucket is summed while later gradients
            are computed.
    """

    in_fixed_order = False

    def __init__(self, devices: Sequence[str], cross_device_ops: Any = None) -> None:
        self.devices = devices
        self.cross_device_ops = cross_device_ops
        self.replicas = len(devices)
        self.places: Sequence[int] = range(len(devices))
        self.bucket_bytes: float = BUCKET_BYTES

    def sum_all(self, values: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return, for each list of the replicas' tensors, their sum on every device."""
        return self._exchange_buckets(values, self._sum_parts)

    def stack_all(self, values: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return, for each list of the replicas' tensors, their stack on every device."""
        return self._exchange_buckets(values, self.stack)

    def _exchange_buckets(
        self, values: Sequence[Sequence[Any]], exchange: Callable[[Sequence[Any]], list[Any]]
    ) -> list[list[Any]]:
        """Exchange tensors, in buckets: the tensors of a bucket are one vector."""
        results: list[list[Any]] = [[] for _ in values]
        for bucket in choose_buckets(
            [parts[0] for parts in values], self._is_collective, self.bucket_bytes
        ):
            if len(bucket) == 1:
                results[bucket[0]] = exchange(values[bucket[0]])
                continue
            vectors = []
            for replica, device in enumerate(self.devices):
                with tf.device(device):
                    flat = [tf.reshape(values[index][replica], [-1]) for index in bucket]
                    vectors.append(tf.concat(flat, 0))
            split: dict[Any, list[Any]] = {}  # The shards of a device share a result.
            for whole, device in zip(exchange(vectors), self.devices, strict=True):
                if whole.ref() not in split:
                    with tf.device(device):
                        split[whole.ref()] = split_bucket(
                            whole, [values[index][0] for index in bucket]
                        )
                for index, tensor in zip(bucket, split[whole.ref()], strict=True):
                    results[index].append(tensor)
        return results

    def _is_collective(self, part: Any) -> bool:
        """Whether TensorFlow's collectives, NCCL's on GPUs, exchange a tensor of the replicas."""
        # The collectives support few types, and are made for a fixed shape.
        is_float = part.dtype.is_floating and part.dtype in _SUMMED
        has_shape = part.shape.is_fully_defined()
        return isinstance(self.cross_device_ops, CollectiveAllReduce) and is_float and has_shape

    def _sum_parts(self, parts: Sequence[Any]) -> list[Any]:
        """Return the sum of the replicas' tensors on every device."""
        if self._is_collective(parts[0]):
            return self._all_reduce(parts)
        if self.cross_device_ops is None or isinstance(self.cross_device_ops, CollectiveAllReduce):
            with tf.device(self.devices[0]):
                total = add_in_order(parts)
            return self.copy_to_devices(total)
        value = values.PerReplica(tuple(parts))
        total = self.cross_device_ops.reduce(tf.distribute.ReduceOp.SUM, value, value)
        return list(getattr(total, "values", [total]))

    def _all_reduce(self, parts: Sequence[Any]) -> list[Any]:
        launchers = self.cross_device_ops._launchers
        return [launcher.all_reduce(part) for launcher, part in zip(launchers, parts, strict=True)]

    def _all_gather(self, parts: Sequence[Any]) -> list[Any]:
        """Return the stack of all replicas' tensors on every device, in the order of launchers."""
        stacks = []
        for part, device, launcher in zip(
            parts, self.devices, self.cross_device_ops._launchers, strict=True
        ):
            with tf.device(device):
                rows = launcher._all_gather(tf.expand_dims(part, 0), None)
                known = part.shape.rank is not None
                rows.set_shape([self.replicas, *part.shape] if known else None)
                stacks.append(rows)
        return stacks

    def gather_all(self, values: Sequence[ExchangedRows]) -> list[list[Any]]:
        """Return, for each list of the replicas' rows, their concatenation on every device."""
        return [self.gather(rows.parts, rows.axis) for rows in values]

    def scatter_sums(self, values: Sequence[ExchangedRows]) -> list[list[Any]]:
        """Return, for each list of the replicas' tensors, each device's own rows of the sum."""
        found: list[list[Any]] = []
        for summed in values:
            blocks = []
            for part, device in zip(summed.parts, self.devices, strict=True):
                with tf.device(device):
                    blocks.append(self._split_rows(part, summed))
            found.append([])
            for place, device in enumerate(self.devices):
                with tf.device(device):
                    found[-1].append(add_in_order([block[place] for block in blocks]))
        return found

    def rows_of_sums(self, values: Sequence[ExchangedRows]) -> list[list[Any]]:
        """Return each device's own rows of sums: after a sum, each replica keeps its rows."""
        found: list[list[Any]] = []
        sums = self.sum_all([summed.parts for summed in values])
        for summed, wholes in zip(values, sums, strict=True):
            found.append([])
            for whole, place, device in zip(wholes, self.places, self.devices, strict=True):
                with tf.device(device):
                    # The results of `split` may share the memory of the whole sum, and keep it.
                    own = tf.raw_ops.DeepCopy(x=self._split_rows(whole, summed)[place])
                found[-1].append(own)
        return found

    def _split_rows(self, whole: Any, rows: ExchangedRows) -> list[Any]:
        return list(tf.split(whole, rows.sizes, rows.axis, num=self.replicas))

    def gather(self, parts: Sequence[Any], axis: int) -> list[Any]:
        """Return the concatenation of the replicas' tensors on every device."""
        with tf.device(device_for(parts[0], self.devices[0])):
            return self.copy_to_devices(tf.concat(list(parts), axis))

    def stack(self, parts: Sequence[Any]) -> list[Any]:
        """Return the stack of the replicas' tensors on every device."""
        if self._is_collective(parts[0]):
            return self._all_gather(parts)
        with tf.device(device_for(parts[0], self.devices[0])):
            return self.copy_to_devices(tf.stack(list(parts)))

    def copy_to_devices(self, tensor: Any) -> list[Any]:
        """Return a tensor on every device; strings stay on the host."""
        copies = [tensor]
        for device in self.devices[1:]:
            with tf.device(device_for(tensor, device)):
                copies.append(tf.identity(tensor))
        return copies


def device_for(tensor: Any, device: str) -> str:
    """Return the device to compute with a tensor: for strings the host, as no GPU has strings."""
    return HOST if tensor.dtype == tf.string else device


def in_a_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """Run a collective's operations of all devices in a function: each waits for all devices."""

    @functools.wraps(method)
    def run(self: Any, values: Any, *args: Any) -> Any:
        if not tf.executing_eagerly():
            return method(self, values, *args)
        with functions_are_traced():
            function = tf.function(lambda given: method(self, given, *args), autograph=False)
            return function(list(values))

    return run


class WorkerCollectives(Collectives):
    """The exchanges of the replicas of several workers, which all build the same program.

    All exchanges use TensorFlow's collectives. Large tensors are summed in buckets of
    `bucket_bytes`, about in the order in which they are computed; 0 means a single bucket.
    """

    def __init__(
        self,
        devices: Sequence[str],
        cross_device_ops: Any,
        *,
        worker: int,
        workers: int,
        bucket_bytes: int = 0,
    ) -> None:
        super().__init__(devices, cross_device_ops)
        local = len(devices)
        self.replicas = local * workers
        # TensorFlow deals out the parts of a batch to the workers in turn, and gathers worker
        # by worker.
        self.places = [number * workers + worker for number in range(local)]
        self._order = [place % workers * local + place // workers for place in range(self.replicas)]
        self.bucket_bytes = bucket_bytes or math.inf

    @in_a_function
    def sum_all(self, values: Sequence[Sequence[Any]]) -> list[list[Any]]:
        return super().sum_all(values)

    def _is_collective(self, part: Any) -> bool:
        return part.dtype in _SUMMED

    def _sum_parts(self, parts: Sequence[Any]) -> list[Any]:
        if self._is_collective(parts[0]):
            return self._all_reduce(parts)
        return [tf.reduce_sum(rows, 0) for rows in self.stack(parts)]

    def gather_all(self, values: Sequence[ExchangedRows]) -> list[list[Any]]:
        found: dict[int, list[Any]] = {}
        dtypes = [rows.parts[0].dtype for rows in values]
        sizes = [rows.padded_size * dtype.size for rows, dtype in zip(values, dtypes, strict=True)]
        for bucket in fill_buckets(dtypes, sizes, self.bucket_bytes):
            own = [
                tf.concat(
                    [
                        values[index].to_vector(values[index].parts[replica], place)
                        for index in bucket
                    ],
                    0,
                )
                for replica, place in enumerate(self.places)
            ]
            wholes = [
                self._join_rows(rows, [values[index] for index in bucket])
                for rows in self.stack(own)
            ]
            found |= dict(zip(bucket, map(list, zip(*wholes, strict=True)), strict=True))
        return [found[index] for index in range(len(values))]

    def _join_rows(self, rows: Any, members: Sequence[ExchangedRows]) -> list[Any]:
        """Return whole tensors from the replicas' buckets: a row of `rows` per replica."""
        with tf.device(rows.device):
            columns = tf.split(rows, [member.padded_size for member in members], 1)
            return [
                tf.concat(
                    [
                        member.from_vector(row, place)
                        for place, row in enumerate(tf.unstack(column, self.replicas))
                    ],
                    member.axis,
                )
                for member, column in zip(members, columns, strict=True)
            ]

    scatter_sums = Collectives.rows_of_sums

    @in_a_function
    def gather(self, parts: Sequence[Any], axis: int) -> list[Any]:
        sizes = self.stack([tf.shape(part)[axis] for part in parts])
        padded = []
        for part, device, counts in zip(parts, self.devices, sizes, strict=True):
            with tf.device(device_for(part, device)):
                here = tf.range(tf.rank(part)) == axis
                missing = tf.where(here, tf.reduce_max(counts) - tf.shape(part)[axis], 0)
                padded.append(tf.pad(part, tf.stack([tf.zeros_like(missing), missing], 1)))
        gathered = []
        stacks = self.stack(padded)
        for part, device, counts, stacked in zip(parts, self.devices, sizes, stacks, strict=True):
            with tf.device(device_for(part, device)):
                here = tf.range(tf.rank(part)) == axis
                blocks = [
                    tf.slice(block, tf.zeros_like(tf.shape(block)), tf.where(here, size, -1))
                    for block, size in zip(
                        tf.unstack(stacked, self.replicas), tf.unstack(counts), strict=True
                    )
                ]
                gathered.append(tf.concat(blocks, axis))
        return gathered

    @in_a_function
    def stack(self, parts: Sequence[Any]) -> list[Any]:
        stacks = []
        sent = [to_sendable(part) for part in parts]
        for rows, device in zip(self._all_gather(sent), self.devices, strict=True):
            with tf.device(device):
                stacks.append(from_sendable(tf.gather(rows, self._order), parts[0].dtype))
        return stacks


_SENT = (tf.float32, tf.float64, tf.float16, tf.int32, tf.int64)  # types of CollectiveGather
_SUMMED = (*_SENT, tf.bfloat16)  # types of CollectiveReduce
_TYPE_OF_SIZE = {2: tf.float16, 4: tf.int32, 8: tf.int64}


def to_sendable(tensor: Any) -> Any:
    """Return a tensor as a type that TensorFlow's all-gather supports: cast, or as its bits."""
    dtype = tensor.dtype
    if dtype == tf.string:
        raise UserError(
            f"received a tensor of strings of shape {tensor.shape} to be gathered from all workers,"
            " which can exchange only numbers: convert strings to numbers in the dataset, such as"
            " data.map(lambda text, label: (text_vectorization(text), label)), and return numbers"
            " from the step; or train on one machine with kdist.MirroredStrategy"
        )
    if dtype in _SENT:
        return tensor
    if (dtype.is_integer and dtype.size <= 2) or dtype == tf.bool:
        return tf.cast(tensor, tf.int32)
    return tf.bitcast(tensor, _TYPE_OF_SIZE.get(dtype.size, tf.float64))


def from_sendable(tensor: Any, dtype: Any) -> Any:
    """Return a tensor that was sent as `to_sendable`, converted back to its own type."""
    if tensor.dtype == dtype:
        return tensor
    if (dtype.is_integer and dtype.size <= 2) or dtype == tf.bool:
        return tf.cast(tensor, dtype)
    return tf.bitcast(tensor, dtype)
