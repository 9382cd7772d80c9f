"""Conversions of a tensor from its placement to the form that an operation wants.

`choose_conversion` decides the conversion of each input once, when the operation is planned. Stages
follow the conversions of the plan (`Stage.read_input`), and the program exchanges tensors for them.

| placement | wanted form | conversion |
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
from .replica_reductions import ONE_TERM
from .rows import Rows


class Conversion:
    """Base class of conversions to a wanted form."""


@dataclass(frozen=True)
class Keep(Conversion):
    """The replica's value without a change."""


@dataclass(frozen=True)
class WriteSizes(Conversion):
    """The sizes of the vector, with the replica's own numbers of rows.

    The vector is not read if `rows` is empty.
    """

    rows: tuple[tuple[int, Rows], ...]


@dataclass(frozen=True)
class TakeWhole(Conversion):
    """The whole tensor, once all replicas have it."""


@dataclass(frozen=True)
class TakeWeight(Conversion):
    """The whole weight, gathered for the stage of a single round."""

    round: int


@dataclass(frozen=True)
class SliceRows(Conversion):
    """The replica's rows of the whole tensor; with `may_broadcast`, a single row is taken whole."""

    shard: Shard
    may_broadcast: bool = False


@dataclass(frozen=True)
class TakeRowsOfSum(Conversion):
    """The replica's rows of a sum; sliced from the whole sum if any operation needs it whole."""

    shard: Shard


@dataclass(frozen=True)
class CountOnce(Conversion):
    """The whole tensor on the first replica, and zeros on all other replicas."""


KEEP, TAKE_WHOLE, COUNT_ONCE = Keep(), TakeWhole(), CountOnce()


def choose_conversion(form: Form, placement: Placement, division: Shard | None) -> Conversion:
    """Return the conversion to a wanted form.

    `division` is the placement of divided variables of the tensor's shape; `None` without any.
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
            return _conversion_to_rows(form.shard, placement, division, may_broadcast=True)
        case Shard():
            return _conversion_to_rows(form, placement, division, may_broadcast=False)
        case Replicate():
            return KEEP if isinstance(placement, Replicate) else TAKE_WHOLE
    raise TypeError(f"unknown form {form}")


def _conversion_to_rows(
    shard: Shard, placement: Placement, division: Shard | None, *, may_broadcast: bool
) -> Conversion:
    if isinstance(placement, Shard) and placement.fits(shard):
        return KEEP
    is_own = placement == PARTIAL and division is not None and division.fits(shard)
    if is_own or placement == Partial(ONE_TERM):
        return TakeRowsOfSum(shard)
    return SliceRows(shard, may_broadcast)


def settle_conversion(placement: Placement, conversion: Conversion) -> Conversion:
    """Return a finished plan's conversion: `KEEP` if batches merged later divide the rows alike."""
    is_slice = isinstance(conversion, SliceRows) and isinstance(placement, Shard)
    return KEEP if is_slice and placement.fits(conversion.shard) else conversion  # type: ignore[attr-defined]


def gathers_rows(placement: Placement, conversion: Conversion) -> bool:
    """Whether a conversion gathers all replicas' rows; a gathered weight does not count."""
    return isinstance(placement, Shard) and not isinstance(
        conversion, Keep | WriteSizes | TakeWeight
    )
