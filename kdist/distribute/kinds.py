"""Kinds of numbers: means over the batch's samples, sums, or neither; and what comes of two.

A replica's mean counts in the global batch's by its share of the samples, its sum counts whole.
"""

import enum
from typing import Any, NamedTuple


class Kind(enum.Enum):
    """How a tensor depends on the samples of this replica."""

    SAME = "the same on every replica"
    ROWS = "a value for each sample, or several"
    COUNT = "the number of samples, or a multiple"
    MEAN = "a mean over the samples"
    SUM = "a sum over the samples"
    OTHER = "something else, which no sum or mean of the replicas' values gives"


class Term(NamedTuple):
    """A summand of a number: `factor * tensor`, the factor the same on every replica."""

    tensor: Any
    factor: Any
    kind: Kind


def added(kinds: set[Kind]) -> Kind:
    """The kind of a sum of tensors."""
    varying = kinds - {Kind.SAME}
    if not varying:
        return Kind.SAME
    if len(varying) > 1 or (Kind.SAME in kinds and varying & {Kind.SUM, Kind.COUNT}):
        return Kind.OTHER
    return varying.pop()


def multiplied(one: Kind, other: Kind) -> Kind:
    """The kind of a product."""
    if Kind.SAME in (one, other):
        return one if other is Kind.SAME else other
    if one is other is Kind.ROWS:
        return Kind.ROWS
    return Kind.SUM if {one, other} == {Kind.MEAN, Kind.COUNT} else Kind.OTHER


def divided(dividend: Kind, divisor: Kind) -> Kind:
    """The kind of a quotient."""
    if divisor is Kind.SAME:
        return dividend
    if dividend is Kind.SUM and divisor is Kind.COUNT:
        return Kind.MEAN
    if divisor is Kind.ROWS and dividend in (Kind.ROWS, Kind.SAME):
        return Kind.ROWS
    return Kind.OTHER
