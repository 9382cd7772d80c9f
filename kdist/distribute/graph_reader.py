"""`GraphReader`: find out from TensorFlow's graph how a tensor depends on a replica's samples.

For Keras's own losses this is known; for a user's computations it is read from the graph.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .. import _upstream
from .operations import (
    ADDITIONS,
    CONSTANTS,
    DIVISIONS,
    ELEMENTWISE,
    KIND_PRESERVING,
    MIXES_ROWS,
    is_along_rows,
    is_zero,
    keeps_first_axis,
    slices_first_size,
    takes_all_rows,
)
from .reduction_kinds import Kind, Term, kind_of_product, kind_of_quotient, kind_of_sum

# Operations further back than this are not read; such a tensor is judged by its shape.
_MAX_DEPTH = 100


class GraphReader:
    """Reads how a tensor depends on this replica's samples from the operations that computed it.

    Args:
        static_rows: Rows of this replica, if known when the step is traced.
    """

    def __init__(self, static_rows: int | None) -> None:
        self._static_rows = static_rows
        # In all graphs of the step: a function's or a condition's has tensors of its own.
        self._marked: dict[tuple[int, str], Kind] = {}
        self._known: dict[tuple[int, str], Kind] = {}

    def mark(self, tensor: Any, kind: Kind) -> None:
        """Record the kind of a tensor, instead of reading it from the operations."""
        self._marked[_name(tensor)] = kind

    def kind(self, tensor: Any, depth: int = 0) -> Kind:
        """Return the kind of a tensor."""
        if not tf.is_symbolic_tensor(tensor):
            return Kind.SAME  # made before the step, such as a constant of a Functional model
        if not self._is_known(tensor):
            for part in self._summed(tensor):
                self._known[_name(part)] = self._read(part, depth + 1)
        name = _name(tensor)
        return self._marked[name] if name in self._marked else self._known[name]

    def terms(self, tensor: Any) -> Sequence[Term]:
        """Split a tensor into its summands, each with its kind."""
        terms, to_split = [], [(tensor, 1.0)]
        while to_split:
            part, factor = to_split.pop()
            kind = self.kind(part)
            summands = _summands(part, factor) if kind is Kind.OTHER else []
            to_split += reversed(summands)
            if not summands:
                terms.append(Term(part, factor, kind))
        return terms

    def _is_known(self, tensor: Any) -> bool:
        return _name(tensor) in self._marked or _name(tensor) in self._known

    def _summed(self, tensor: Any) -> list[Any]:
        """Return a tensor, after the sums that it adds up: there may be more than `_MAX_DEPTH`."""
        found: dict[tuple[int, str], Any] = {}
        to_do = [(tensor, False)]
        while to_do:
            part, is_done = to_do.pop()
            if is_done:
                found[_name(part)] = part
            elif _name(part) not in found:
                to_do.append((part, True))
                inputs = part.op.inputs if part.op.type in ADDITIONS else ()
                sums = [one for one in inputs if one.op.type in ADDITIONS]
                to_do += [(one, False) for one in sums if not self._is_known(one)]
        return list(found.values())

    def _read(self, tensor: Any, depth: int) -> Kind:
        operation = tensor.op
        kind, inputs = operation.type, operation.inputs
        if kind in CONSTANTS or tensor.dtype == tf.resource:
            return Kind.SAME
        if not inputs:
            outer = _captured_tensor(tensor)
            return self._by_shape(tensor) if outer is None else self.kind(outer, depth)
        if depth > _MAX_DEPTH:
            return Kind.ROWS if self._has_rows(tensor) else Kind.OTHER

        def of(index: int) -> Kind:
            return self.kind(inputs[index], depth)

        def of_all() -> set[Kind]:
            return {self.kind(part, depth) for part in inputs}

        if kind in KIND_PRESERVING:
            rows_moved = of(0) is Kind.ROWS and not self._keeps_rows_first(operation)
            return Kind.OTHER if rows_moved else of(0)
        if kind == "IdentityN":
            return of(tensor.value_index)
        if kind in ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss"):
            return self._reduced(operation, of(0))
        if kind in ("Shape", "Size"):
            counts = of(0) is not Kind.SAME and self._has_rows(inputs[0])
            return Kind.COUNT if counts else Kind.SAME
        if kind == "StridedSlice" and inputs[0].op.type == "Shape":
            return of(0) if slices_first_size(operation) else Kind.SAME
        if kind in ("BroadcastTo", "Tile") and self._has_rows(tensor):
            return Kind.ROWS if of(0) in (Kind.SAME, Kind.ROWS) else Kind.OTHER
        if kind == "Range":
            return Kind.ROWS if of_all() - {Kind.SAME} else Kind.SAME
        if kind in ADDITIONS or kind in ELEMENTWISE or kind in ("Mul", *DIVISIONS):
            rows = [part for part in inputs if self.kind(part, depth) is Kind.ROWS]
            if len({part.shape.rank for part in rows}) > 1:
                return Kind.OTHER  # one is broadcast along the other's rows
        if kind in ADDITIONS:
            return kind_of_sum({self.kind(part, depth) for part in inputs if not is_zero(part)})
        if kind == "Mul":
            return kind_of_product(of(0), of(1))
        if kind in DIVISIONS:
            return kind_of_quotient(of(0), self._divisor(inputs[1], depth))
        if kind in ELEMENTWISE:
            return Kind.OTHER if of_all() - {Kind.SAME, Kind.ROWS} else kind_of_sum(of_all())
        if kind == "Pack" and operation.get_attr("axis") == 0 and of(0) is Kind.ROWS:
            return Kind.OTHER
        if kind in ("ConcatV2", "Pack"):
            return kind_of_sum(of_all() - {Kind.COUNT})
        if of_all() <= {Kind.SAME}:
            return Kind.SAME
        inner = self._inner_kind(tensor, depth)
        if inner is not None:
            return inner
        if self._mixes(operation, depth):
            return Kind.OTHER
        return Kind.ROWS if self._has_rows(tensor) else Kind.OTHER

    def _inner_kind(self, tensor: Any, depth: int) -> Kind | None:
        """Return the kind of the result of a function or a condition, read from its graphs.

        `None` for other operations, and if replicas may choose different branches.
        """
        operation = tensor.op
        graphs = _upstream.inner_graphs(operation)
        inputs = list(operation.inputs)
        if len(graphs) > 1 and self.kind(inputs.pop(0), depth) is not Kind.SAME:
            return None
        kinds = set()
        for graph in graphs:
            reader = GraphReader(self._static_rows)  # each call has other arguments
            reader._marked |= self._marked
            for outer, inner in zip(inputs, graph.inputs, strict=True):
                reader.mark(inner, self.kind(outer, depth))
            kinds.add(reader.kind(graph.outputs[tensor.value_index], depth))
        return kind_of_sum(kinds) if kinds else None

    def _has_rows(self, tensor: Any) -> bool:
        rank = tensor.shape.rank
        return rank is None or (rank > 0 and tensor.shape[0] in (None, self._static_rows))

    def _by_shape(self, tensor: Any) -> Kind:
        return Kind.ROWS if self._has_rows(tensor) else Kind.SAME

    def _reduced(self, operation: Any, kind: Kind) -> Kind:
        reduction = operation.type
        if kind is not Kind.ROWS:
            # A mean stays a mean if it is summed or averaged over its other axes.
            linear = reduction in ("Sum", "Mean") or kind is Kind.SAME
            return kind if linear or (reduction == "Prod" and kind is Kind.COUNT) else Kind.OTHER
        axes = 0 if reduction == "L2Loss" else tf.get_static_value(operation.inputs[1])
        rank = operation.inputs[0].shape.rank
        if axes is None or rank is None:
            return Kind.OTHER
        if 0 not in np.atleast_1d(axes) % max(rank, 1):
            return Kind.ROWS
        return {"Sum": Kind.SUM, "L2Loss": Kind.SUM, "Mean": Kind.MEAN}.get(reduction, Kind.OTHER)

    def _keeps_rows_first(self, operation: Any) -> bool:
        kind, inputs = operation.type, operation.inputs
        if kind == "Transpose":
            order = tf.get_static_value(inputs[1])
            return bool(order is not None and order[0] == 0)
        if kind == "ExpandDims":
            return tf.get_static_value(inputs[1]) not in (0, -inputs[0].shape.rank - 1)
        if kind == "Reshape":
            lead = operation.outputs[0].shape[:1]
            known = lead[0] if lead.rank else 0
            return known is None or bool(self._static_rows and known % self._static_rows == 0)
        return True

    def _divisor(self, tensor: Any, depth: int) -> Kind:
        value = tf.get_static_value(tensor)
        if self._static_rows and value is not None and np.ndim(value) == 0:
            return Kind.COUNT if value == self._static_rows else Kind.SAME
        return self.kind(tensor, depth)

    def _mixes(self, operation: Any, depth: int) -> bool:
        """Whether a row of the result depends on several samples."""
        kind, inputs = operation.type, operation.inputs
        if kind == "MatMul":
            first, second = (self.kind(part, depth) is not Kind.SAME for part in inputs)
            return bool(second or (first and operation.get_attr("transpose_a")))
        if kind == "Einsum":
            varying = [self.kind(part, depth) is not Kind.SAME for part in inputs]
            return not keeps_first_axis(operation, varying)
        if kind in ("Softmax", "LogSoftmax", "TopKV2"):
            return bool(inputs[0].shape.rank == 1)
        if kind in ("Cumsum", "Cumprod", "ReverseV2", "Roll", "GatherV2"):
            axis = inputs[1] if kind in ("Cumsum", "Cumprod", "ReverseV2") else inputs[2]
            return self.kind(inputs[0], depth) is Kind.ROWS and is_along_rows(axis, inputs[0])
        if kind in ("StridedSlice", "Slice", "Split", "SplitV", "Unpack"):
            part = inputs[1] if kind == "Split" else inputs[0]
            if kind == "Slice" and self.kind(inputs[2], depth) is Kind.COUNT:
                return False  # it takes as many rows as the batch has
            return self.kind(part, depth) is Kind.ROWS and not takes_all_rows(operation)
        return kind in MIXES_ROWS


def _summands(tensor: Any, factor: Any) -> list[tuple[Any, Any]]:
    """Return what a tensor is the sum of, each with its factor; nothing if it is no sum."""
    operation, inputs = tensor.op, tensor.op.inputs
    if operation.type in ("AddV2", "Add", "AddN"):
        return [(summand, factor) for summand in inputs]
    if operation.type == "Sub":
        return [(inputs[0], factor), (inputs[1], -1.0 * factor)]
    if operation.type == "Neg":
        return [(inputs[0], -1.0 * factor)]
    if operation.type in ("Identity", "IdentityN", "EnsureShape"):
        return [(inputs[tensor.value_index], factor)]
    if operation.type == "Mul":
        for constant, other in (inputs, inputs[::-1]):
            if tf.get_static_value(constant) is not None and not len(constant.shape):
                return [(other, factor * constant)]
    # A factor that is not constant may be a weight: its gradient depends on the whole product.
    is_divided = operation.type in ("RealDiv", "DivNoNan")
    if is_divided and tf.get_static_value(inputs[1]) is not None:
        return [(inputs[0], factor / inputs[1])]
    return []


def _name(tensor: Any) -> tuple[int, str]:
    return id(tensor.graph), tensor.name


def _captured_tensor(tensor: Any) -> Any | None:
    """Return the tensor that a condition or function has captured as this placeholder."""
    captures = getattr(tensor.graph, "captures", ())
    return next((outer for outer, inner in captures if inner is tensor), None)
