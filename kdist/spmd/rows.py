"""`Rows`: the division of an axis over the replicas."""

from __future__ import annotations

from dataclasses import dataclass

from .sizes import (
    AnySize,
    BatchAxis,
    as_size,
    batch_axes_in,
    divide_exactly,
    expected_number,
    key_of,
)

Segment = tuple[BatchAxis, AnySize]


@dataclass(frozen=True, eq=False)
class Rows:
    """Division of an axis: for each segment, `unit` rows for each row of a batch axis.

    A batch is one segment of unit 1, `concat([a, b])` of two batches has two segments, and
    `reshape(x, (-1, 8))` of rows of 24 numbers has the unit 3. Every replica has a contiguous block
    of each segment.
    """

    segments: tuple[Segment, ...]

    @property
    def total(self) -> AnySize:
        """The size of the axis over all replicas."""
        return sum(as_size(batch_axis) * unit for batch_axis, unit in self.segments)

    @property
    def counts(self) -> dict[BatchAxis, AnySize]:
        """Rows of the axis for each row of a batch axis, in all segments together."""
        counts: dict[BatchAxis, AnySize] = {}
        for batch_axis, unit in self.segments:
            counts[batch_axis.root()] = counts.get(batch_axis.root(), 0) + unit
        return counts

    @property
    def is_batch(self) -> bool:
        """Whether the rows are a batch's, not a divided variable's."""
        return all(batch_axis.is_batch for batch_axis, _ in self.segments)

    @property
    def known_parts(self) -> list[int] | None:
        """The rows of each replica, for rows of a divided variable that keep their order."""
        (batch_axis, unit), *others = self.segments
        if others or batch_axis.is_batch or batch_axis.parts is None or not isinstance(unit, int):
            return None
        return [unit * count for count in batch_axis.parts]

    def is_total(self, size: AnySize) -> bool:
        """Whether `size` is the size of the axis, also as a number that is known while tracing."""
        if isinstance(size, int):
            return expected_number(self.total, rows=None) == size
        return self.total == size

    def multiply(self, factor: AnySize) -> Rows:
        """Return the rows with `factor` rows in place of each row."""
        return Rows(tuple((batch_axis, unit * factor) for batch_axis, unit in self.segments))

    def divide(self, factor: AnySize, divisor: AnySize) -> Rows | None:
        """Return the rows with `factor / divisor` rows in place of each row.

        `None` if a unit of the result would not be a size.
        """
        segments: list[Segment] = []
        for batch_axis, unit in self.segments:
            changed = divide_exactly(unit * factor, divisor)
            if changed is None:
                return None
            segments.append((batch_axis, changed))
        return Rows(tuple(segments))

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.segments + other.segments)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return False
        # Equal under the merges of batch axes that hold now. The merges of a body hold only while
        # the body is planned: see `TensorFacts.hold_assumptions`.
        mine, others = (
            [(batch_axis.root(), unit) for batch_axis, unit in rows.segments]
            for rows in (self, other)
        )
        return mine == others

    # The hash is stable once a step is planned: no batch axes are merged after planning.
    def __hash__(self) -> int:
        return hash(tuple((axis.root().order, key_of(unit)) for axis, unit in self.segments))

    def __repr__(self) -> str:
        return "+".join(
            f"{axis}" if unit == 1 else f"{axis}*{unit}" for axis, unit in self.segments
        )


def rows_of(size: AnySize) -> Rows | None:
    """Return a division of an axis of this size, if it is a multiple of a single batch's rows."""
    batch_axes = batch_axes_in(size)
    if len(batch_axes) != 1:
        return None
    (batch_axis,) = batch_axes
    unit = divide_exactly(size, as_size(batch_axis))
    if unit is None or batch_axes_in(unit):
        return None
    if isinstance(unit, int) and unit < 1:
        return None
    return Rows(((batch_axis, unit),))
