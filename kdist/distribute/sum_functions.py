"""Numbers that are computed from sums and means over the samples: a root, a ratio, a product."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .graph_reader import GraphReader
from .operations import ADDITIONS, DIVISIONS, ELEMENTWISE, KIND_PRESERVING, REDUCTIONS
from .reduction_kinds import Kind

# Computed again on the sums over all replicas; all have one result, and a gradient if any.
_AGAIN = (ADDITIONS | DIVISIONS | ELEMENTWISE | KIND_PRESERVING | REDUCTIONS | {"Mul"}) - {
    *("StopGradient", "PreventGradient", "DeepCopy", "PlaceholderWithDefault", "CheckNumerics"),
}
_MOST_OPERATIONS = 200


class SumFunction:
    """A number as a function of means and sums over the samples, with the operations between.

    Args:
        parts: Tensors that are means, sums or counts of this replica's samples, or the same on
            every replica.
        path: The tensors that are computed from them, in order; the number is the last.
    """

    def __init__(self, parts: Sequence[Any], path: Sequence[Any]) -> None:
        self.parts = parts
        self._path = path

    def at(self, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Compute the number from other values of the parts.

        Returns:
            The number, and its derivative by each value; `None` if it does not depend on it.
        """
        values = [tf.stop_gradient(value) for value in values]
        new = {part.ref(): value for part, value in zip(self.parts, values, strict=True)}
        for tensor in self._path:
            new[tensor.ref()] = _again(tensor.op, [new.get(x.ref(), x) for x in tensor.op.inputs])
        number = new[self._path[-1].ref()]
        return number, tf.gradients(number, values)


def sum_function(number: Any, reader: GraphReader) -> SumFunction | None:
    """Return a number as a function of means and sums; `None` if it is none, or may be none.

    Args:
        number: A scalar that is neither a mean nor a sum over the samples.
        reader: Reads how tensors depend on the samples.
    """
    parts: dict[Any, Any] = {}
    path: dict[Any, Any] = {}
    to_do = [(number, False)]
    while to_do:
        tensor, is_done = to_do.pop()
        key = tensor.ref()
        if is_done:
            path[key] = tensor
        if is_done or key in parts or key in path:
            continue
        kind = reader.kind(tensor)
        if kind in (Kind.MEAN, Kind.SUM, Kind.COUNT, Kind.SAME):
            if kind is not Kind.SAME or tf.get_static_value(tensor) is None:
                parts[key] = tensor
            continue
        is_outside = tensor.graph is not number.graph
        if kind is not Kind.OTHER or is_outside or not _can_be_again(tensor.op):
            return None
        to_do.append((tensor, True))
        to_do += [(one, False) for one in tensor.op.inputs]
        if len(path) + len(to_do) > _MOST_OPERATIONS:
            return None
    return SumFunction(list(parts.values()), list(path.values()))


def _can_be_again(operation: Any) -> bool:
    attributes = operation.node_def.attr
    return operation.type in _AGAIN and "_gradient_op_type" not in attributes


def _again(operation: Any, inputs: Sequence[Any]) -> Any:
    """Add an operation to the graph once more, with other inputs."""
    attributes = operation.node_def.attr
    copy = operation.graph.create_op(
        operation.type,
        inputs,
        [output.dtype for output in operation.outputs],
        attrs={name: attributes[name] for name in attributes if not name.startswith("_")},
        op_def=operation.op_def,
    )
    return copy.outputs[0]
