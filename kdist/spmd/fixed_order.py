"""Exchanges with `shards=`: sums that have the same bits on any number of devices.

Sums are added in a fixed order. Each stage is a function that TensorFlow must not inline
(`Program`). A stage changes variables after all of its reads, as the shards of a device share the
variables (`ProgramStage.writers`, `GraphPlan._wait_for_changes`). A divided variable has a part for
each shard, wherever the shard is.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .._upstream.add_in_order import add_in_order
from .collectives import (
    Collectives,
    WorkerCollectives,
    device_for,
    from_sendable,
    in_a_function,
    to_sendable,
)


class FixedOrder(Collectives):
    """The exchanges of shards: sums in a fixed order, for any number of devices.

    The second half of the shards is added to the first half, until a single sum is left: of 8
    shards, the fifth is added to the first, the sixth to the second. Shards are dealt out to
    devices in turn, so these pairs share a device if there are 1, 2 or 4 devices.
    """

    in_fixed_order = True
    scatter_sums = Collectives.rows_of_sums

    def _sum_parts(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return self.copy_to_devices(_add_up_shards(parts, self.devices)[0])

    def copy_to_devices(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """Return a tensor for every shard, once on each device; strings stay on the host."""
        copies: dict[str, tf.Tensor] = {self.devices[0]: tensor}
        for device in self.devices:
            if device not in copies:
                with tf.device(device_for(tensor, device)):
                    copies[device] = tf.identity(tensor)
        return [copies[device] for device in self.devices]


class WorkerFixedOrder(WorkerCollectives):
    """The exchanges of the shards of several workers: sums in the order of `FixedOrder`.

    Each worker adds up its own shards, as far as the order of `FixedOrder` adds them before shards
    of different workers. Then the sums are gathered, and added up on every device.
    """

    in_fixed_order = True

    def _sum_parts(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        local = len(self.cross_device_ops._launchers)
        totals = []
        stacks = self.stack(_add_up_shards(parts, self.devices, multiple=local))
        for stacked, device in zip(stacks[:local], self.devices, strict=False):
            terms = tf.unstack(stacked)
            totals += _add_up_shards(terms, [device_for(stacked, device)] * len(terms))
        return totals * (len(parts) // local)

    @in_a_function
    def stack(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        launchers = self.cross_device_ops._launchers
        workers = self.replicas // len(self.devices)
        local, parts_per_device = len(launchers), len(parts) // len(launchers)
        order = [
            (p % workers * local + p // workers % local) * parts_per_device + p // workers // local
            for p in range(workers * len(parts))
        ]
        stacks = []
        for number, launcher in enumerate(launchers):
            with tf.device(self.devices[number]):
                sent = tf.stack([to_sendable(part) for part in parts[number::local]])
                rows = launcher._all_gather(sent, None)
                if sent.shape.rank is not None:
                    rows.set_shape([len(order), *sent.shape[1:]])
                stacks.append(from_sendable(tf.gather(rows, order), parts[0].dtype))
        return stacks * parts_per_device


def _add_up_shards(
    parts: Sequence[tf.Tensor], devices: Sequence[str], multiple: int = 0
) -> list[tf.Tensor]:
    """Add up shards' tensors: the second half to the first half, until a single tensor is left.

    With a `multiple`, stop where the number of tensors is odd, or half of it is no multiple of
    `multiple`.
    """
    terms = list(parts)
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        if multiple and (len(terms) % 2 or half % multiple):
            break
        for number, other in enumerate(terms[half:]):
            with tf.device(device_for(other, devices[number])):
                terms[number] = add_in_order([terms[number], other])
                terms[number].set_shape(other.shape)
        terms = terms[:half]
    return terms
