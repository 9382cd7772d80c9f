"""`Kind`: whether a number is a mean or a sum over samples, and the rules to combine kinds.

The global batch's mean is the replicas' means, weighted by their fractions of the samples; its sum
is the sum of the replicas' sums.
"""

import enum
from typing import Any, NamedTuple


class Kind(enum.Enum):
    """How a tensor depends on the samples of this replica."""

    SAME = "the same on every replica"
    ROWS = "one or several values per sample"
    COLUMNS = "one or several values per sample, along another axis than the first"
    PAIRS = "values that depend on several samples each, whatever is computed from them"
    COUNT = "the number of samples, or a multiple of it"
    MEAN = "a mean over the samples"
    SUM = "a sum over the samples"
    OTHER = "none of these: it cannot be computed from the replicas' values"


class Term(NamedTuple):
    """A summand of a number: `factor * tensor`; the factor is the same on every replica."""

    tensor: Any
    factor: Any
    kind: Kind


# It cannot be computed from the replicas' values.
INEXACT = {Kind.COLUMNS, Kind.PAIRS, Kind.OTHER}


def combines_samples(kinds: set[Kind]) -> bool:
    """Whether values of these kinds, combined element by element, depend on several samples."""
    is_with_all = Kind.ROWS in kinds and bool(kinds & {Kind.COLUMNS, Kind.MEAN, Kind.SUM})
    return Kind.PAIRS in kinds or is_with_all


def kind_of_sum(kinds: set[Kind]) -> Kind:
    """Return the kind of a sum of tensors."""
    varying = kinds - {Kind.SAME}
    if not varying:
        return Kind.SAME
    if combines_samples(varying):
        return Kind.PAIRS
    if len(varying) > 1 or (Kind.SAME in kinds and varying & {Kind.SUM, Kind.COUNT}):
        return Kind.OTHER
    return varying.pop()


def kind_of_product(one: Kind, other: Kind) -> Kind:
    """Return the kind of a product."""
    if Kind.SAME in (one, other):
        return one if other is Kind.SAME else other
    if combines_samples({one, other}):
        return Kind.PAIRS
    if one is other and one in (Kind.ROWS, Kind.COLUMNS):
        return one
    return Kind.SUM if {one, other} == {Kind.MEAN, Kind.COUNT} else Kind.OTHER


def kind_of_quotient(dividend: Kind, divisor: Kind) -> Kind:
    """Return the kind of a quotient."""
    if divisor is Kind.SAME:
        return dividend
    if combines_samples({dividend, divisor}):
        return Kind.PAIRS
    if dividend is Kind.SUM and divisor is Kind.COUNT:
        return Kind.MEAN
    if divisor is Kind.ROWS and dividend in (Kind.ROWS, Kind.SAME):
        return Kind.ROWS
    return Kind.OTHER
