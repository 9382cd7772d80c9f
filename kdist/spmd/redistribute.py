"""Ways from a tensor's placement to the form that an operation wants.

The way of each input is decided once, when its operation is planned (`choose_way`), and kept in the
plan. A stage follows the way (`Stage.read_input`), and the program exchanges tensors for the way.

| placement | wanted form | way |
| --- | --- | --- |
| any | `LocalValue`; the same placement | `Keep` |
| any | `LocalSizes` | `WriteSizes` |
| shard, partial | replicate | `TakeWhole`: the program has gathered the rows, or reduced |
| rows of a divided weight | replicate | `TakeWeight`: gathered for a single stage |
| replicate | a shard, `BroadcastRows` | `SliceRows` of the tensor |
| shard, partial | another shard, `BroadcastRows` | `SliceRows` of the whole, as for `TakeWhole` |
| partial sum | rows of a divided variable | `TakeRowsOfSum`: each replica gets its own rows |
| partial of one term | a shard | `TakeRowsOfSum` |
| replicate, shard | partial sum | `CountOnce`: zeros on all replicas but the first replica |
"""

from __future__ import annotations

from dataclasses import dataclass

from .operation import BroadcastRows, Form, LocalSizes, LocalValue
from .placements import PARTIAL, Opaque, Partial, Placement, Replicate, Shard
from .reduction import ONE_TERM
from .rows import Rows


class Way:
    """Base class of ways to a wanted form."""


@dataclass(frozen=True)
class Keep(Way):
    """The replica's value without a change."""


@dataclass(frozen=True)
class WriteSizes(Way):
    """The sizes of the vector, with the replica's own numbers of rows.

    The vector is not read if `rows` is empty.
    """

    rows: tuple[tuple[int, Rows], ...]


@dataclass(frozen=True)
class TakeWhole(Way):
    """The whole tensor, once all replicas have it."""


@dataclass(frozen=True)
class TakeWeight(Way):
    """The whole weight, gathered for a single stage.

    Args:
        round: The round of the stage.
    """

    round: int


@dataclass(frozen=True)
class SliceRows(Way):
    """The replica's rows of the whole tensor.

    Args:
        shard: The division of the rows.
        may_broadcast: Whether a tensor of a single row is taken whole.
    """

    shard: Shard
    may_broadcast: bool = False


@dataclass(frozen=True)
class TakeRowsOfSum(Way):
    """The replica's rows of a sum; sliced from the whole sum if any operation needs it whole."""

    shard: Shard


@dataclass(frozen=True)
class CountOnce(Way):
    """The whole tensor on the first replica, and zeros on all other replicas."""


KEEP, TAKE_WHOLE, COUNT_ONCE = Keep(), TakeWhole(), CountOnce()


def choose_way(form: Form, placement: Placement, division: Shard | None) -> Way:
    """Return the way to a wanted form.

    Args:
        form: The form.
        placement: The placement of the tensor.
        division: The placement of divided variables of the tensor's shape; `None` without any.
    """
    match form:
        case LocalSizes():
            return WriteSizes(form.rows)
        case LocalValue() | Opaque():
            return KEEP
        case Partial() if form == placement:
            return KEEP
        case Partial() if form == PARTIAL and not isinstance(placement, Partial):
            return COUNT_ONCE
        case Partial():
            raise ValueError(f"a rule wants {form}, to which {placement} cannot be converted")
        case BroadcastRows():
            return _way_to_rows(form.shard, placement, division, may_broadcast=True)
        case Shard():
            return _way_to_rows(form, placement, division, may_broadcast=False)
        case Replicate():
            return KEEP if isinstance(placement, Replicate) else TAKE_WHOLE
    raise TypeError(f"unknown form {form}")


def _way_to_rows(
    shard: Shard, placement: Placement, division: Shard | None, *, may_broadcast: bool
) -> Way:
    if isinstance(placement, Shard) and placement.fits(shard):
        return KEEP
    is_own = placement == PARTIAL and division is not None and division.fits(shard)
    if is_own or placement == Partial(ONE_TERM):
        return TakeRowsOfSum(shard)
    return SliceRows(shard, may_broadcast)


def settle_way(placement: Placement, way: Way) -> Way:
    """Return the way in a finished plan: `KEEP` if batches merged later divide the rows alike."""
    is_slice = isinstance(way, SliceRows) and isinstance(placement, Shard)
    return KEEP if is_slice and placement.fits(way.shard) else way  # type: ignore[attr-defined]


def gathers_rows(placement: Placement, way: Way) -> bool:
    """Whether a way gathers the rows of all replicas; the gather of a weight does not count."""
    return isinstance(placement, Shard) and not isinstance(way, Keep | WriteSizes | TakeWeight)
