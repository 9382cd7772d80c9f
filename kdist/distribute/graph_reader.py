"""`GraphReader`: find out from TensorFlow's graph how a tensor depends on a replica's samples.

For Keras's own losses this is known; for a user's computations it is read from the graph.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .. import _upstream
from .computed import Computed
from .mixed_rows import mixes_rows, pairs_samples
from .operation_rules import kind_by_rule
from .operations import ADDITIONS, CONSTANTS, VALUE_INDEPENDENT, is_constant_size
from .reduction_kinds import INEXACT, Kind, Term, kind_of_sum

# Operations further back than this are not read; such a tensor is judged by its shape.
_MAX_DEPTH = 100


class GraphReader:
    """Reads how a tensor depends on this replica's samples from the operations that computed it.

    An operation without a rule, such as a convolution, gives rows if its shape says so, unless it
    is computed from values of several samples each. In a model this is right: a layer that depends
    on the samples' mean, such as a batch norm, is exact by itself or named in a warning of its own.
    A strict reader takes what such an operation computes from dependent rows for dependent, too; it
    is for loss functions and metrics, which can be computed on the global batch.

    Args:
        static_rows: Rows of this replica, if known when the step is traced.
        marked: Kinds that were recorded; by default none.
        is_strict: Whether it is a strict reader.
    """

    def __init__(
        self,
        static_rows: int | None,
        *,
        marked: dict[tuple[int, str], Kind] | None = None,
        is_strict: bool = False,
    ) -> None:
        self._static_rows = static_rows
        self._is_strict = is_strict
        # In all graphs of the step: a function's or a condition's has tensors of its own.
        self._marked = {} if marked is None else marked
        self._known: dict[tuple[int, str], Kind] = {}

    def strict(self) -> "GraphReader":
        """Return a strict reader with the same marks."""
        return GraphReader(self._static_rows, marked=self._marked, is_strict=True)

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
            summands = _summands(part, factor) if kind in INEXACT else []
            to_split += reversed(summands)
            if not summands:
                terms.append(Term(part, factor, kind))
        return terms

    def source_of_pairs(self, tensor: Any) -> Any:
        """Return the first of the values that depend on several samples, from which it comes."""
        while True:
            inputs = tensor.op.inputs or [_captured_tensor(tensor)]
            pairs = [one for one in inputs if one is not None and self.kind(one) is Kind.PAIRS]
            if not pairs:
                return tensor
            tensor = pairs[0]

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
        if is_constant_size(operation, self._static_rows):
            return Kind.COUNT
        if operation.type in CONSTANTS or tensor.dtype == tf.resource:
            return Kind.SAME
        one = Computed(tensor, lambda part: self.kind(part, depth), self._static_rows)
        if not operation.inputs:
            outer = _captured_tensor(tensor)
            if outer is not None:
                return self.kind(outer, depth)
            return Kind.ROWS if one.has_rows(tensor) else Kind.SAME
        found = None
        if depth <= _MAX_DEPTH:
            found = kind_by_rule(one) or self._by_inputs(one, depth)
        return found or (Kind.ROWS if one.keeps_rows() else Kind.OTHER)

    def _by_inputs(self, one: Computed, depth: int) -> Kind | None:
        """Return the kind of the result of an operation without a rule; `None` if unknown."""
        kinds = one.of_all()
        if kinds <= {Kind.SAME}:
            return Kind.SAME
        if pairs_samples(one):
            return Kind.PAIRS
        inner = self._inner_kind(one.tensor, depth)
        if inner is None and Kind.PAIRS in kinds and one.operation.type not in VALUE_INDEPENDENT:
            return Kind.PAIRS
        mixes = mixes_rows(one) or (self._is_strict and _has_mixed(one))
        return Kind.OTHER if inner is None and mixes else inner

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
            # Each call has other arguments.
            marked = dict(self._marked)
            reader = GraphReader(self._static_rows, marked=marked, is_strict=self._is_strict)
            for outer, inner in zip(inputs, graph.inputs, strict=True):
                reader.mark(inner, self.kind(outer, depth))
            kinds.add(reader.kind(graph.outputs[tensor.value_index], depth))
        return kind_of_sum(kinds) if kinds else None


def _has_mixed(one: Computed) -> bool:
    """Whether rows of an input depend on several samples, which sizes and the like have not."""
    rows = one.static_rows
    return any(
        one.kind_of(part) in INEXACT
        and (one.has_rows(part) or bool(rows and part.shape[0] % rows == 0))
        for part in one.inputs
        if part.shape.rank
    )


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
