"""Where the values of a tensor are: on every replica, divided, or to be reduced.

The words are those of PyTorch's DTensor and of GSPMD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .sizes import AnySize, Space, key_of, quotient, symbolic

Segment = tuple[Space, AnySize]


@dataclass(frozen=True, eq=False)
class Rows:
    """How an axis is divided: for each segment, a replica has `unit` rows per row of its space.

    A batch is one segment of unit 1, `concat([a, b])` of two batches has two, and after
    `reshape(x, (-1, 8))` of rows of 24 numbers the unit is 3. Every replica has a contiguous block
    of each segment.
    """

    segments: tuple[Segment, ...]

    @property
    def total(self) -> AnySize:
        """The size of the axis over all replicas."""
        return sum(symbolic(space) * unit for space, unit in self.segments)

    @property
    def counts(self) -> dict[Space, AnySize]:
        """Rows of the axis for each row of a space: if they are the same, so is the division."""
        counts: dict[Space, AnySize] = {}
        for space, unit in self.segments:
            counts[space.root()] = counts.get(space.root(), 0) + unit
        return counts

    @property
    def is_batch(self) -> bool:
        """Whether these are rows of a batch, not of a variable."""
        return all(space.is_batch for space, _ in self.segments)

    def is_total(self, size: AnySize) -> bool:
        """Whether a size is that of the axis, as a number if this is known while tracing."""
        if not isinstance(size, int):
            return self.total == size
        total = 0
        for space, unit in self.segments:
            known = space.root().total
            if known is None or not isinstance(unit, int):
                return False
            total += known * unit
        return total == size

    def times(self, factor: AnySize) -> Rows:
        """Return the rows with `factor` rows in place of each."""
        return Rows(tuple((space, unit * factor) for space, unit in self.segments))

    def divided(self, factor: AnySize, divisor: AnySize) -> Rows | None:
        """Return the rows with `factor / divisor` rows in place of each, if that is a number."""
        segments: list[Segment] = []
        for space, unit in self.segments:
            changed = quotient(unit * factor, divisor)
            if changed is None:
                return None
            segments.append((space, changed))
        return Rows(tuple(segments))

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.segments + other.segments)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rows)
            and len(self.segments) == len(other.segments)
            and all(
                a.root() is b.root() and u == v
                for (a, u), (b, v) in zip(self.segments, other.segments, strict=True)
            )
        )

    def __hash__(self) -> int:  # stable once a step is planned: nothing is merged after that
        return hash(tuple((space.root().order, key_of(unit)) for space, unit in self.segments))

    def __repr__(self) -> str:
        return "+".join(f"{s}" if u == 1 else f"{s}*{u}" for s, u in self.segments)


class Placement:
    """Base class of placements."""


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
        rows: How it is divided.
        uniform: Whether all rows are equal, as after a broadcast: then any division that gives a
            replica the same number of rows is right.
        within: The rows of which the values are global indices, if those of a replica's rows
            point to rows of the same replica, as the result of `tf.where`.
    """

    axis: int
    rows: Rows
    uniform: bool = False
    within: Rows | None = None

    def fits(self, other: Placement) -> bool:
        """Whether a tensor with this placement has the other one, too."""
        if not isinstance(other, Shard) or self.axis != other.axis:
            return False
        return self.rows == other.rows or (self.uniform and self.rows.counts == other.rows.counts)

    def at(self, axis: int) -> Shard:
        """Return this placement along another axis."""
        return Shard(axis, self.rows, self.uniform, self.within)

    def plain(self) -> Shard:
        """Return this placement of values of which nothing else is known."""
        return Shard(self.axis, self.rows)

    def __repr__(self) -> str:
        return f"shard({self.axis}, {self.rows}{', uniform' if self.uniform else ''})"


@dataclass(frozen=True)
class Partial(Placement):
    """The value is the reduction over all replicas of what each has.

    Args:
        op: `"add"`, `"max"`, `"min"`, `"prod"`, `"all"`, `"any"`; `"moments"`, the mean and the
            mean of squared distances from it, stacked; or `"statistics"`, count, mean and sum of
            squared distances from it, stacked.
        rows: Of moments: the rows that they are of.
    """

    op: str = "add"
    rows: Rows | None = None

    def __repr__(self) -> str:
        return f"partial({self.op})"


@dataclass(frozen=True)
class ListOf(Placement):
    """A TensorFlow list of tensors (`TensorList`) on every replica.

    Args:
        element: The placement of its elements; `None` if nothing was put into it yet.
        sizes: What is known of the values of its elements, if they are sizes.
        origin: The operation that made the list.
    """

    element: Placement | None
    origin: Any
    sizes: Any = None


@dataclass(frozen=True)
class Opaque(Placement):
    """Each replica has a value of its rows, in a form that only one operation can read.

    Args:
        origin: The operation that made it, which is computed whole if another one reads it.
        rows: The rows that it is of.
    """

    origin: Any
    rows: Rows


REPLICATE = Replicate()
PARTIAL = Partial()


# What an operation wants of an input, apart from placements.
@dataclass(frozen=True)
class AsIs:
    """Whatever is there."""


@dataclass(frozen=True)
class OwnRows:
    """The replica's rows of a tensor; all of a single row that is broadcast."""

    shard: Shard


@dataclass(frozen=True)
class Local:
    """A vector of sizes, some of them replaced by the replica's own numbers of rows."""

    rows: tuple[tuple[int, Rows], ...]


AS_IS = AsIs()


def local(index: int, rows: Rows) -> Local:
    """Return the want of a size vector whose element `index` counts the replica's rows."""
    return Local(((index, rows),))


def rows_of(size: AnySize) -> Rows | None:
    """Return a division of an axis of this size, if it is a multiple of the rows of one batch."""
    if isinstance(size, int):
        return None
    spaces = size.spaces()
    if len(spaces) != 1:
        return None
    (space,) = spaces

    unit = quotient(size, symbolic(space))
    if unit is None or not (isinstance(unit, int) or not unit.spaces()):
        return None
    if isinstance(unit, int) and unit < 1:
        return None
    return Rows(((space, unit),))
