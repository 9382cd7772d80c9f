"""Placements: where the values of a tensor are.

PyTorch's DTensor and GSPMD use the same words. A replica's local value of a tensor has the tensor's
shape, but for the divided axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .replica_reductions import SUM, Reduction
from .rows import Rows


class Placement:
    """Base class of placements."""

    def as_plain(self) -> Placement:
        """Return this placement without facts about the values, `uniform` and `within`."""
        return self


@dataclass(frozen=True)
class Replicate(Placement):
    """Every replica has the whole tensor."""

    def __repr__(self) -> str:
        return "replicate"


@dataclass(frozen=True)
class Shard(Placement):
    """Every replica has its rows along an axis.

    Args:
        axis: The divided axis, from 0.
        rows: The division of the axis.
        uniform: Whether all rows are equal, as after a broadcast: then any division that gives a
            replica the same number of rows is right.
        within: The rows that the values index, if each value is the global index of a row on the
            same replica, as in the result of `tf.where`.
    """

    axis: int
    rows: Rows
    uniform: bool = False
    within: Rows | None = None

    def fits(self, other: Placement) -> bool:
        """Whether every tensor with this placement has the placement `other`, too."""
        if not isinstance(other, Shard) or self.axis != other.axis:
            return False
        return self.rows == other.rows or (self.uniform and self.rows.counts == other.rows.counts)

    def on_axis(self, axis: int) -> Shard:
        """Return this placement along a given axis."""
        return Shard(axis, self.rows, self.uniform, self.within)

    def as_plain(self) -> Shard:
        return Shard(self.axis, self.rows)

    def __repr__(self) -> str:
        return f"shard({self.axis}, {self.rows}{', uniform' if self.uniform else ''})"


@dataclass(frozen=True)
class Partial(Placement):
    """The whole tensor is the reduction of the replicas' local values."""

    reduction: Reduction = SUM

    def __repr__(self) -> str:
        return f"partial({self.reduction.name})"


@dataclass(frozen=True)
class ListOf(Placement):
    """Every replica has a TensorFlow list of tensors (`TensorList`), or an optional.

    `element` is `None` for an empty list. `sizes` has known values of elements that are sizes.
    """

    element: Placement | None
    origin: tf.Operation
    sizes: Any = None


@dataclass(frozen=True)
class Opaque(Placement):
    """Each replica has a value for its rows, in a form that a single operation can read.

    If any further operation reads the value, the `origin` that made it is computed whole.
    """

    origin: tf.Operation
    rows: Rows


REPLICATE = Replicate()
PARTIAL = Partial()
