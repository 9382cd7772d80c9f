"""What the operations of a planned step cost: floating-point operations and bytes.

A multiplication and an addition are two operations. Matrix products and convolutions are counted
as such, and of all others the values that they read or make, whichever are more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .functions import called_graphs
from .placements import Partial, Shard
from .plan import Item, Planner, is_gathered
from .sizes import AnySize, Size

_FREE = ("Const", "NoOp", "Placeholder", "ReadVariableOp", "Identity", "Reshape", "Shape")
# Of these, only what they take of their inputs.
_TAKE = ("Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd", "ResourceGather")
_CUBIC = ("Cholesky", "Svd", "Qr", "MatrixInverse", "MatrixSolve", "SelfAdjointEigV2")


@dataclass(frozen=True)
class Work:
    """Floating-point operations.

    Attributes:
        divided: Of which each replica computes a part.
        whole: For the rows of the whole batch, on every replica.
        repeated: Whatever the batch is, on every replica, such as an optimizer's updates.
    """

    divided: float = 0.0
    whole: float = 0.0
    repeated: float = 0.0

    @property
    def total(self) -> float:
        """All of them, as one device would compute them."""
        return self.divided + self.whole + self.repeated

    def __add__(self, other: Work) -> Work:
        return Work(
            self.divided + other.divided, self.whole + other.whole, self.repeated + other.repeated
        )

    def __mul__(self, times: float) -> Work:
        return Work(self.divided * times, self.whole * times, self.repeated * times)


class Costs:
    """Counts the work of a planned step.

    Args:
        planner: The plan.
        rows: The rows of a batch, where their number is not known.
        of_batch: Ids of tensors that have rows of the whole batch, on every replica.

    Attributes:
        totals: The numbers of rows that are known.
    """

    def __init__(self, planner: Planner, rows: int, of_batch: Iterable[int] = ()) -> None:
        self._planner, self._rows = planner, rows
        self._of_batch = set(of_batch)
        placements = [one for item in planner.items for one in item.placements]
        rows_of = [one.rows.segments for one in placements if isinstance(one, Shard)]
        spaces = {space.root() for segments in rows_of for space, _ in segments}
        totals = {space.total for space in spaces if space.is_batch}
        self.totals = [total for total in totals if total is not None and total > 1]

    def bytes(self, tensor: Any) -> float:
        """Return the size of a whole tensor."""
        return self._elements(tensor) * float(tensor.dtype.size)

    def each(self) -> Iterator[tuple[Item, Work, list[Any]]]:
        """Yield all operations of the plan, their work, and tensors of which they need all rows."""
        for item in self._planner.items:
            asked = zip(item.inputs, item.placements, item.decision.want, strict=True)
            gathered = [
                t
                for t, placement, want in asked
                if is_gathered(placement, want)
                and isinstance(placement, Shard)
                and placement.rows.is_batch
            ]
            yield item, self._work(item, bool(gathered)), gathered

    def _work(self, item: Item, gathers: bool) -> Work:
        is_divided = any(isinstance(one, Shard | Partial) for one in item.decision.out)
        if item.decision.bodies:
            branches = [self._body(item, body) for body in item.decision.bodies]
            return max(branches, key=lambda one: one.total) * self._iterations(item.op)
        flops = self._flops(item.op)
        if is_divided:
            return Work(divided=flops)
        grown = [t for t in item.op.outputs if self._grows(t)]
        if gathers or item.whole or any(id(t) in self._of_batch for t in item.inputs):
            self._of_batch.update(map(id, grown))
            return Work(whole=flops)
        symbolic = [t for t in grown if self._has_rows(t)]
        self._of_batch.update(map(id, symbolic))
        return Work(whole=flops) if symbolic else Work(repeated=flops)

    def _body(self, item: Item, body: Planner) -> Work:
        given = item.inputs if "While" in item.op.type else item.inputs[1:]
        pairs = zip(body.tensors, given, strict=False)  # its inputs were planned first
        of_batch = [key for key, t in pairs if id(t) in self._of_batch]
        work = Costs(body, self._rows, of_batch).total()
        # Such as a loop over the rows, one at a time.
        return work if work.divided or not of_batch else Work(whole=work.total)

    def total(self) -> Work:
        """Return the work of all operations."""
        return sum((work for _, work, _ in self.each()), Work())

    def _has_rows(self, tensor: Any) -> bool:
        """Whether its size is known to grow with a batch."""
        dims = self._planner.dims(tensor)
        return any(isinstance(size, Size) and bool(size.spaces()) for size in dims or ())

    def _grows(self, tensor: Any) -> bool:
        """Whether its size may grow with a batch."""
        dims = None if tensor.dtype.name == "variant" else self._planner.dims(tensor)
        return dims is None or any(
            not isinstance(size, int) or (size > 0 and any(size % n == 0 for n in self.totals))
            for size in dims
        )

    def _flops(self, op: Any) -> float:
        if op.type in _FREE:
            return 0.0
        graphs = called_graphs(op)
        if graphs:  # which have no plans of their own
            inner = [sum(map(self._flops, graph.get_operations())) for graph in graphs]
            return max(inner) * self._iterations(op)
        length = self._summed(op)
        if length is not None:
            return 2 * length
        made = sum(map(self._elements, op.outputs))
        if op.type in _TAKE:
            return made
        read = max(map(self._elements, op.inputs), default=0.0)
        cubic = (self._dims(op.inputs[0]) or [1.0])[-1] if op.type in _CUBIC else 1.0
        return max(made, read) * cubic

    def _summed(self, op: Any) -> float | None:
        """Return how many products a matrix product or convolution adds up; `None` for others."""
        kind = op.type
        if kind == "MatMul" or kind.startswith("BatchMatMul"):
            first = self._dims(op.inputs[0]) or [1.0, 1.0]
            flipped = op.get_attr("transpose_a" if kind == "MatMul" else "adj_x")
            return self._elements(op.outputs[0]) * first[-2 if flipped else -1]
        if kind == "Einsum":
            sizes = dict(self._labels(op))
            _, _, made = op.get_attr("equation").decode().partition("->")
            inner = [size for label, size in sizes.items() if label not in made]
            return self._elements(op.outputs[0]) * math.prod(inner)
        if kind.startswith(("Conv2D", "Conv3D", "DepthwiseConv2dNative")):
            kernel = op.outputs[0] if "BackpropFilter" in kind else op.inputs[1]
            result = op.inputs[2] if "Backprop" in kind else op.outputs[0]
            axes = self._dims(kernel) or []  # the last axis, or two, are of the result
            window = axes[:2] if kind.startswith("Depthwise") else axes[:-1]
            return self._elements(result) * math.prod(window)
        return None

    def _labels(self, op: Any) -> Iterator[tuple[str, float]]:
        """Yield the axes of an einsum's inputs with their sizes."""
        terms = op.get_attr("equation").decode().partition("->")[0].split(",")
        for term, tensor in zip(terms, op.inputs, strict=True):
            sizes = self._dims(tensor) or []
            before, dots, after = term.partition("...")
            yield from zip(before, sizes, strict=False)
            if dots and after:
                yield from zip(after, sizes[-len(after) :], strict=False)

    def _iterations(self, op: Any) -> float:
        """Return how often a loop runs, as far as is known; otherwise once."""
        if "While" not in op.type:
            return 1.0
        most = self._planner.canonical(op.inputs[1])  # of TensorFlow's loops: their maximum
        while most.op.type in ("Cast", "Identity", "Max") and most.shape.rank == 0:
            most = self._planner.canonical(most.op.inputs[0])
        if not self._is_planned(most) or not most.dtype.is_integer or most.shape.rank != 0:
            return 1.0
        return max(self._number(self._planner.sizes(most).item()), 1.0)

    def _elements(self, tensor: Any) -> float:
        if tensor.dtype.name in ("resource", "variant"):
            return 0.0
        return math.prod(self._dims(tensor) or ())

    def _dims(self, tensor: Any) -> list[float] | None:
        dims: Sequence[AnySize | None] | None
        if self._is_planned(tensor):
            dims = self._planner.dims(tensor)
        else:
            dims = None if tensor.shape.rank is None else tensor.shape.as_list()
        return None if dims is None else [self._number(size) for size in dims]

    def _is_planned(self, tensor: Any) -> bool:
        """Whether it is no tensor within an operation that is computed as it is."""
        return id(self._planner.canonical(tensor)) in self._planner.tensors

    def _number(self, size: AnySize | None) -> float:
        if size is None:
            return float(self._rows)
        if isinstance(size, int):
            return float(size)
        terms = size.terms.items()
        return float(abs(sum(n * math.prod(map(self._value, symbols)) for symbols, n in terms)))

    def _value(self, symbol: Any) -> int:
        known: int | None = getattr(symbol, "total", None)
        return self._rows if known is None else known
