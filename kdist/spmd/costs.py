"""Costs of the operations of a planned step: floating-point operations and bytes.

For matrix products and convolutions, a multiplication and an addition count as two operations. The
cost of any other operation is the size of its largest input, or of its results if larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .functions import called_graphs
from .op_types import CONDITIONS, CUBIC, SLICES, WITHOUT_COST
from .placements import Partial, Shard
from .plan import GraphPlan, PlannedOperation
from .redistribute import gathers_rows
from .sizes import AnySize, batch_axes_in, evaluate
from .tensor_facts import Ref


@dataclass(frozen=True)
class Work:
    """Floating-point operations.

    Attributes:
        divided: Operations divided over the replicas.
        whole: Operations on all rows of the batch, on every replica.
        repeated: Operations that do not depend on the batch, on every replica, such as an
            optimizer's updates.
    """

    divided: float = 0.0
    whole: float = 0.0
    repeated: float = 0.0

    @property
    def total(self) -> float:
        """The operations of one device."""
        return self.divided + self.whole + self.repeated

    def __add__(self, other: Work) -> Work:
        return Work(
            self.divided + other.divided, self.whole + other.whole, self.repeated + other.repeated
        )

    def __mul__(self, times: float) -> Work:
        return Work(self.divided * times, self.whole * times, self.repeated * times)


class Costs:
    """Counts the work of a planned step.

    `rows` is the number of rows to assume for a batch whose number of rows is unknown; `of_batch`
    has the tensors of which every replica has all rows of the batch.
    """

    def __init__(self, plan: GraphPlan, rows: int, of_batch: Iterable[Ref] = ()) -> None:
        self._plan, self._rows = plan, rows
        self._of_batch = set(of_batch)
        placements = [placement for planned in plan.operations for placement in planned.placements]
        segments = [p.rows.segments for p in placements if isinstance(p, Shard)]
        batch_axes = {batch_axis.root() for pairs in segments for batch_axis, _ in pairs}
        totals = {axis.total for axis in batch_axes if axis.is_batch}
        self.totals = [total for total in totals if total is not None and total > 1]

    def bytes(self, tensor: tf.Tensor) -> float:
        """Return the size of a whole tensor."""
        return self._count_elements(tensor) * float(tensor.dtype.size)

    def each_operation(self) -> Iterator[tuple[PlannedOperation, Work, list[tf.Tensor]]]:
        """Yield each operation of the plan, with its work and the tensors gathered for it."""
        for planned in self._plan.operations:
            inputs = zip(planned.inputs, planned.placements, planned.conversions, strict=True)
            gathered = [
                tensor
                for tensor, placement, conversion in inputs
                if isinstance(placement, Shard)
                and gathers_rows(placement, conversion)
                and placement.rows.is_batch
            ]
            yield planned, self._work_of(planned, bool(gathered)), gathered

    def _work_of(self, planned: PlannedOperation, gathers: bool) -> Work:
        results = planned.decision.output_placements
        is_divided = any(isinstance(placement, Shard | Partial) for placement in results)
        if planned.decision.bodies:
            bodies = [body for body in planned.decision.bodies if isinstance(body, GraphPlan)]
            branches = [self._work_of_body(planned, body) for body in bodies]
            return max(branches, key=lambda work: work.total) * self._count_iterations(planned.op)
        flops = self._count_flops(planned.op)
        if is_divided:
            return Work(divided=flops)
        grown = [t for t in planned.op.outputs if self._grows_with_batch(t)]
        if gathers or planned.is_whole or any(t.ref() in self._of_batch for t in planned.inputs):
            self._of_batch.update(t.ref() for t in grown)
            return Work(whole=flops)
        symbolic = [t for t in grown if self._has_rows(t)]
        self._of_batch.update(t.ref() for t in symbolic)
        return Work(whole=flops) if symbolic else Work(repeated=flops)

    def _work_of_body(self, planned: PlannedOperation, body: GraphPlan) -> Work:
        given = planned.inputs[planned.op.type in CONDITIONS :]  # The predicate comes first.
        pairs = zip(body.inputs, given, strict=True)
        of_batch = [inner.ref() for inner, outer in pairs if outer.ref() in self._of_batch]
        work = Costs(body, self._rows, of_batch).total()
        # An undivided body that reads rows of the batch, such as a loop over the rows.
        return work if work.divided or not of_batch else Work(whole=work.total)

    def total(self) -> Work:
        """Return the work of all operations."""
        return sum((work for _, work, _ in self.each_operation()), Work())

    def _has_rows(self, tensor: tf.Tensor) -> bool:
        """Whether the tensor's size is known to grow with a batch."""
        dims = self._plan.dims_of(tensor)
        return any(map(batch_axes_in, dims or ()))

    def _grows_with_batch(self, tensor: tf.Tensor) -> bool:
        """Whether the tensor's size may grow with a batch."""
        dims = None if tensor.dtype.name == "variant" else self._plan.dims_of(tensor)
        return dims is None or any(
            not isinstance(size, int) or (size > 0 and any(size % n == 0 for n in self.totals))
            for size in dims
        )

    def _count_flops(self, op: tf.Operation) -> float:
        if op.type in WITHOUT_COST:
            return 0.0
        graphs = called_graphs(op)
        if graphs:  # The called functions have no plans of their own.
            inner = [sum(map(self._count_flops, graph.get_operations())) for graph in graphs]
            return max(inner) * self._count_iterations(op)
        length = self._count_summands(op)
        if length is not None:
            return 2 * length
        written = sum(map(self._count_elements, op.outputs))
        if op.type in SLICES:
            return written
        read = max(map(self._count_elements, op.inputs), default=0.0)
        cubic = (self._known_dims(op.inputs[0]) or [1.0])[-1] if op.type in CUBIC else 1.0
        return max(written, read) * cubic

    def _count_summands(self, op: tf.Operation) -> float | None:
        """Return the number of products that a matrix product or convolution adds up.

        `None` for operations of all other types.
        """
        kind = op.type
        if kind == "MatMul" or kind.startswith("BatchMatMul"):
            first = self._known_dims(op.inputs[0]) or [1.0, 1.0]
            flipped = op.get_attr("transpose_a" if kind == "MatMul" else "adj_x")
            return self._count_elements(op.outputs[0]) * first[-2 if flipped else -1]
        if kind == "Einsum":
            sizes = dict(self._label_sizes(op))
            _, _, kept = op.get_attr("equation").decode().partition("->")
            inner = [size for label, size in sizes.items() if label not in kept]
            return self._count_elements(op.outputs[0]) * math.prod(inner)
        if kind.startswith(("Conv2D", "Conv3D", "DepthwiseConv2dNative")):
            kernel = op.outputs[0] if "BackpropFilter" in kind else op.inputs[1]
            result = op.inputs[2] if "Backprop" in kind else op.outputs[0]
            # The last axis, or the last two, belong to the result.
            axes = self._known_dims(kernel) or []
            window = axes[:2] if kind.startswith("Depthwise") else axes[:-1]
            return self._count_elements(result) * math.prod(window)
        return None

    def _label_sizes(self, op: tf.Operation) -> Iterator[tuple[str, float]]:
        terms = op.get_attr("equation").decode().partition("->")[0].split(",")
        for term, tensor in zip(terms, op.inputs, strict=True):
            sizes = self._known_dims(tensor) or []
            before, dots, after = term.partition("...")
            yield from zip(before, sizes, strict=False)
            if dots and after:
                yield from zip(after, sizes[-len(after) :], strict=False)

    def _count_iterations(self, op: tf.Operation) -> float:
        """Return a loop's number of iterations; 1 if the number is unknown, or `op` is no loop."""
        if "While" not in op.type:
            return 1.0
        # The second input of a TensorFlow loop is the maximum number of iterations.
        most = self._plan.resolve_alias(op.inputs[1])
        while most.op.type in ("Cast", "Identity", "Max") and most.shape.rank == 0:
            most = self._plan.resolve_alias(most.op.inputs[0])
        if not self._plan.has_tensor(most) or not most.dtype.is_integer or most.shape.rank != 0:
            return 1.0
        return max(self._expected_size(self._plan.sizes_in(most).item()), 1.0)

    def _count_elements(self, tensor: tf.Tensor) -> float:
        if tensor.dtype.name in ("resource", "variant"):
            return 0.0
        return math.prod(self._known_dims(tensor) or ())

    def _known_dims(self, tensor: tf.Tensor) -> list[float] | None:
        dims: Sequence[AnySize | None] | None
        if self._plan.has_tensor(tensor):
            dims = self._plan.dims_of(tensor)
        else:
            dims = None if tensor.shape.rank is None else tensor.shape.as_list()
        return None if dims is None else [self._expected_size(size) for size in dims]

    def _expected_size(self, size: AnySize | None) -> float:
        def value_of(symbol: Any) -> int:
            known: int | None = getattr(symbol, "total", None)
            return self._rows if known is None else known

        return float(self._rows if size is None else abs(evaluate(size, value_of)))
