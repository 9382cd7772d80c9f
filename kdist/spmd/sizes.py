"""Sizes: integers that follow from the numbers of rows of batches, known when a step runs.

A size is a polynomial with integer coefficients over symbols: the number of rows of a batch
(`BatchAxis`), the size of an axis that every replica has whole (`AxisSize`), or an element of an
integer tensor (`Element`). Sizes that are known while the step is traced are plain `int`s.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

_orders = itertools.count()


class Symbol:
    """An unknown nonnegative integer, the same for all replicas."""

    def __init__(self) -> None:
        self.order = next(_orders)

    def root(self) -> Symbol:
        """Return this symbol; for a merged `BatchAxis` the axis that it was merged into."""
        return self


class BatchAxis(Symbol):
    """The axis that counts the rows of a batch: each replica has a contiguous block of rows.

    Args:
        name: The name in messages, such as `"input 2"`.
        total: The number of rows over all replicas, if it is known.
        parts: The numbers of rows of all replicas, if they are known.
        source: The tensor and axis that have these rows, if the step makes the rows. `None` for an
            input of the step: its numbers of rows are known before the step begins.
        is_batch: Whether the rows are a batch's, not a divided variable's.
    """

    def __init__(
        self,
        name: str,
        total: int | None = None,
        source: Any = None,
        parts: tuple[int, ...] | None = None,
        is_batch: bool = True,
    ) -> None:
        super().__init__()
        self.name = name
        self.total = total
        self.parts = parts
        self.source = source
        self.is_batch = is_batch
        self.merged: BatchAxis | None = None

    def root(self) -> BatchAxis:
        """Return this axis, or after `merge` the axis that it was merged into."""
        return self if self.merged is None else self.merged.root()

    def may_equal(self, other: BatchAxis) -> bool:
        """Whether two inputs of a step may have equally many rows on each replica."""
        if not (self.is_batch and other.is_batch) or self.source or other.source:
            return False
        pairs = ((self.total, other.total), (self.parts, other.parts))
        return all(mine == others or None in (mine, others) for mine, others in pairs)

    def merge(self, other: BatchAxis) -> Callable[[], None]:
        """Declare that both axes are divided alike; return a function that undoes the merge."""
        mine, others = self.root(), other.root()
        if mine is others:
            return lambda: None
        total, parts = mine.total, mine.parts

        def undo() -> None:
            others.merged, mine.total, mine.parts = None, total, parts

        others.merged = mine
        mine.total = others.total if total is None else total
        mine.parts = parts or others.parts
        return undo

    def __repr__(self) -> str:
        return f"<{self.root().name}>"


class AxisSize(Symbol):
    """The size of an axis of a tensor; all replicas have the whole axis."""

    def __init__(self, tensor: Any, axis: int) -> None:
        super().__init__()
        self.tensor, self.axis = tensor, axis

    def __repr__(self) -> str:
        return f"{self.tensor.name}.shape[{self.axis}]"


class Element(Symbol):
    """An element of an integer tensor of rank 0 or 1; all replicas have the tensor.

    With `is_size`, the element is the size of an axis, so it cannot be -1.
    """

    def __init__(self, tensor: Any, index: int, *, is_size: bool = False) -> None:
        super().__init__()
        self.tensor, self.index, self.is_size = tensor, index, is_size

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{self.index}]"


Monomial = tuple[Symbol, ...]


class Size:
    """A polynomial over symbols that is no plain number."""

    __slots__ = ("own_terms",)

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.own_terms = terms

    @property
    def terms(self) -> dict[Monomial, int]:
        """Coefficients, by sorted symbols, each replaced by the symbol that stands for it."""
        if all(symbol.root() is symbol for monomial in self.own_terms for symbol in monomial):
            return self.own_terms
        return _add_terms((_sort_symbols(monomial), n) for monomial, n in self.own_terms.items())

    def only_symbol(self) -> Symbol | None:
        """Return the symbol that this size is; `None` for sums, products and multiples."""
        (monomial, count), *others = self.terms.items()
        return monomial[0] if not others and count == 1 and len(monomial) == 1 else None

    def __add__(self, other: AnySize) -> AnySize:
        return _make_size([*self.terms.items(), *_terms_of(other)])

    __radd__ = __add__

    def __sub__(self, other: AnySize) -> AnySize:
        return self + other * -1

    def __rsub__(self, other: AnySize) -> AnySize:
        return self * -1 + other

    def __mul__(self, other: AnySize) -> AnySize:
        return _make_size(
            (_sort_symbols((*a, *b)), m * n)
            for a, m in self.terms.items()
            for b, n in _terms_of(other)
        )

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        raise TypeError("a Size is not hashable: it changes when batches are merged")

    def __repr__(self) -> str:
        return " + ".join("·".join(map(str, (n, *symbols))) for symbols, n in self.terms.items())


AnySize = int | Size


def key_of(size: AnySize) -> Any:
    """Return a key that equal sizes share, once a step is planned: then no axes are merged."""
    if isinstance(size, int):
        return size
    return tuple(sorted((tuple(s.order for s in m), n) for m, n in size.terms.items()))


def symbols_in(size: AnySize) -> set[Symbol]:
    """Return the symbols in a size."""
    return {symbol for monomial, _ in _terms_of(size) for symbol in monomial}


def batch_axes_in(size: AnySize) -> set[BatchAxis]:
    """Return the batch axes whose rows a size counts."""
    return {symbol for symbol in symbols_in(size) if isinstance(symbol, BatchAxis)}


def expected_number(size: AnySize, rows: int | None) -> int | None:
    """Return a size if the numbers of rows in it are known, or expected; else `None`.

    `rows` is the expected number of rows of a batch of an unknown number.
    """
    numbers: dict[Symbol, int | None] = {}
    for symbol in symbols_in(size):
        if not isinstance(symbol, BatchAxis) or symbol.source is not None:
            return None
        numbers[symbol] = rows if symbol.total is None else symbol.total
    return None if None in numbers.values() else int(evaluate(size, numbers.__getitem__))


def evaluate(
    size: AnySize, value_of: Callable[[Symbol], Any], constant: Callable[[int], Any] = int
) -> Any:
    """Return a size computed from the values of its symbols, numbers or tensors.

    `constant` converts an integer to the type of the values.
    """
    terms = []
    for symbols, factor in _terms_of(size):
        values = [value_of(symbol) for symbol in symbols]
        if factor != 1 or not values:
            values.append(constant(factor))
        terms.append(functools.reduce(operator.mul, values))
    return functools.reduce(operator.add, terms) if terms else constant(0)


def as_size(symbol: Symbol) -> Size:
    """Return a symbol as a size."""
    return Size({(symbol.root(),): 1})


def divide_exactly(size: AnySize, divisor: AnySize) -> AnySize | None:
    """Return size / divisor if this is a polynomial with integer coefficients; else `None`."""
    if divisor == 1:
        return size
    below = list(_terms_of(divisor))
    if len(below) != 1:
        symbols, by = below[0] if below else ((), 0)
        for monomial, n in _terms_of(size) if below else ():
            factor = divide_exactly(_make_size([(monomial, n)]), _make_size([(symbols, by)]))
            if factor is not None and divisor * factor == size:
                return factor
        return None
    ((symbols, by),) = below
    parts = []
    for monomial, n in _terms_of(size):
        rest = list(monomial)
        for symbol in symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if n % by:
            return None
        parts.append((tuple(rest), n // by))
    return _make_size(parts)


def _terms_of(size: AnySize) -> Iterable[tuple[Monomial, int]]:
    if isinstance(size, Size):
        return size.terms.items()
    return [((), int(size))] if size else []


def _sort_symbols(symbols: Monomial) -> Monomial:
    return tuple(sorted((s.root() for s in symbols), key=lambda s: s.order))


def _add_terms(terms: Iterable[tuple[Monomial, int]]) -> dict[Monomial, int]:
    found: dict[Monomial, int] = {}
    for monomial, n in terms:
        found[monomial] = found.get(monomial, 0) + n
    return {monomial: n for monomial, n in found.items() if n}


def _make_size(terms: Iterable[tuple[Monomial, int]]) -> AnySize:
    found = _add_terms(terms)
    if not found:
        return 0
    if len(found) == 1 and () in found:
        return found[()]
    return Size(found)
