"""Exchange values between replicas: sums, and what is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Collectives:
    """The exchanges of the replicas of one machine.

    Args:
        devices: One for each replica.
        cross_device_ops: Sums tensors over devices, a `tf.distribute.CrossDeviceOps`; `None` adds
            them up on the first.
    """

    def __init__(self, devices: Sequence[str], cross_device_ops: Any = None) -> None:
        self.devices = devices
        self.cross_device_ops = cross_device_ops

    def sums(self, values: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return, for each list of the replicas' tensors, their sum on every device."""
        if self.cross_device_ops is None or not values:
            return [self._sum(parts) for parts in values]
        pairs = [(per_replica, per_replica) for per_replica in map(_per_replica, values)]
        reduced = self.cross_device_ops.batch_reduce(tf.distribute.ReduceOp.SUM, pairs)
        return [list(one.values) for one in reduced]

    def _sum(self, parts: Sequence[Any]) -> list[Any]:
        with tf.device(self.devices[0]):
            total = parts[0] + parts[1] if len(parts) == 2 else tf.add_n(list(parts))
        return self.copies(total)

    def gather(self, parts: Sequence[Any], axis: int) -> list[Any]:
        """Return the concatenation of the replicas' tensors on every device."""
        with tf.device(self.devices[0]):
            return self.copies(tf.concat(list(parts), axis))

    def stack(self, parts: Sequence[Any]) -> list[Any]:
        """Return the stack of the replicas' tensors on every device."""
        with tf.device(self.devices[0]):
            return self.copies(tf.stack(list(parts)))

    def copies(self, tensor: Any) -> list[Any]:
        """Return a tensor on every device."""
        made = [tensor]
        for device in self.devices[1:]:
            with tf.device(device):
                made.append(tf.identity(tensor))
        return made


def _per_replica(parts: Sequence[Any]) -> Any:
    from tensorflow.python.distribute import values

    return values.PerReplica(tuple(parts))
