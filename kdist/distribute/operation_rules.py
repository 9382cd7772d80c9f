"""How the result of an operation depends on a replica's samples: a rule for each operation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .operations import (
    ADDITIONS,
    DIVISIONS,
    ELEMENTWISE,
    KIND_PRESERVING,
    MIXES_ROWS,
    MIXES_ROWS_OF_MATRIX,
    REDUCTIONS,
    is_along_rows,
    is_zero,
    keeps_first_axis,
    slices_first_size,
    takes_all_rows,
)
from .reduction_kinds import Kind, kind_of_product, kind_of_quotient, kind_of_sum


@dataclasses.dataclass(frozen=True)
class Computed:
    """A tensor, with what is known of the inputs of its operation.

    Attributes:
        tensor: The result.
        kind_of: Returns the kind of an input.
        static_rows: Rows of this replica, if known when the step is traced.
    """

    tensor: Any
    kind_of: Callable[[Any], Kind]
    static_rows: int | None

    @property
    def operation(self) -> Any:
        """The operation that computes it."""
        return self.tensor.op

    @property
    def inputs(self) -> Any:
        """The operation's inputs."""
        return self.tensor.op.inputs

    def of(self, index: int) -> Kind:
        """The kind of one input."""
        return self.kind_of(self.inputs[index])

    def of_all(self) -> set[Kind]:
        """The kinds of all inputs."""
        return set(map(self.kind_of, self.inputs))

    def has_rows(self, tensor: Any) -> bool:
        """Whether a tensor may have a row per sample, by its shape."""
        rank = tensor.shape.rank
        return rank is None or (rank > 0 and tensor.shape[0] in (None, self.static_rows))


def kind_by_rule(one: Computed) -> Kind | None:
    """Return the kind of a tensor by the rule for its operation; `None` if none applies."""
    rule = _RULES.get(one.operation.type)
    return None if rule is None else rule(one)


def mixes_rows(one: Computed) -> bool:
    """Whether a row of the result depends on several samples."""
    operation, inputs = one.operation, one.inputs
    kind = operation.type
    if kind == "MatMul":
        first, second = (one.kind_of(part) is not Kind.SAME for part in inputs)
        return bool(second or (first and operation.get_attr("transpose_a")))
    if kind == "Einsum":
        varying = [one.kind_of(part) is not Kind.SAME for part in inputs]
        return not keeps_first_axis(operation, varying)
    if kind in ("Softmax", "LogSoftmax", "TopKV2"):
        return bool(inputs[0].shape.rank == 1)
    if kind in ("Cumsum", "Cumprod", "ReverseV2", "Roll", "GatherV2"):
        axis = inputs[1] if kind in ("Cumsum", "Cumprod", "ReverseV2") else inputs[2]
        return one.of(0) is Kind.ROWS and is_along_rows(axis, inputs[0])
    if kind in ("StridedSlice", "Slice", "Split", "SplitV", "Unpack"):
        if kind == "Slice" and one.of(2) is Kind.COUNT:
            return False  # it takes as many rows as the batch has
        return one.of(1 if kind == "Split" else 0) is Kind.ROWS and not takes_all_rows(operation)
    if kind in MIXES_ROWS_OF_MATRIX:
        return inputs[0].shape.rank in (None, 2)
    return kind in MIXES_ROWS


def _preserved(one: Computed) -> Kind:
    kind = one.of(0)
    return Kind.OTHER if kind is Kind.ROWS and not _keeps_rows_first(one) else kind


def _keeps_rows_first(one: Computed) -> bool:
    kind, inputs = one.operation.type, one.inputs
    if kind == "Transpose":
        order = tf.get_static_value(inputs[1])
        return bool(order is not None and order[0] == 0)
    if kind == "ExpandDims":
        return tf.get_static_value(inputs[1]) not in (0, -inputs[0].shape.rank - 1)
    if kind == "Reshape":
        lead = one.tensor.shape[:1]
        known = lead[0] if lead.rank else 0
        return known is None or bool(one.static_rows and known % one.static_rows == 0)
    return True


def _passed_on(one: Computed) -> Kind:
    return one.of(one.tensor.value_index)


def _reduced(one: Computed) -> Kind:
    reduction, kind = one.operation.type, one.of(0)
    if kind is not Kind.ROWS:
        # A mean stays a mean if it is summed or averaged over its other axes.
        linear = reduction in ("Sum", "Mean") or kind is Kind.SAME
        return kind if linear or (reduction == "Prod" and kind is Kind.COUNT) else Kind.OTHER
    axes = 0 if reduction == "L2Loss" else tf.get_static_value(one.inputs[1])
    rank = one.inputs[0].shape.rank
    if axes is None or rank is None:
        return Kind.OTHER
    if 0 not in np.atleast_1d(axes) % max(rank, 1):
        return Kind.ROWS
    return {"Sum": Kind.SUM, "L2Loss": Kind.SUM, "Mean": Kind.MEAN}.get(reduction, Kind.OTHER)


def _size(one: Computed) -> Kind:
    counts = one.of(0) is not Kind.SAME and one.has_rows(one.inputs[0])
    return Kind.COUNT if counts else Kind.SAME


def _slice_of_sizes(one: Computed) -> Kind | None:
    if one.inputs[0].op.type != "Shape":
        return None
    return one.of(0) if slices_first_size(one.operation) else Kind.SAME


def _repeated(one: Computed) -> Kind | None:
    if not one.has_rows(one.tensor):
        return None
    return Kind.ROWS if one.of(0) in (Kind.SAME, Kind.ROWS) else Kind.OTHER


def _range(one: Computed) -> Kind:
    return Kind.ROWS if one.of_all() - {Kind.SAME} else Kind.SAME


def _packed(one: Computed) -> Kind:
    operation = one.operation
    if operation.type == "Pack" and operation.get_attr("axis") == 0 and one.of(0) is Kind.ROWS:
        return Kind.OTHER
    return kind_of_sum(one.of_all() - {Kind.COUNT})


def _sum(one: Computed) -> Kind:
    return kind_of_sum({one.kind_of(part) for part in one.inputs if not is_zero(part)})


def _product(one: Computed) -> Kind:
    return kind_of_product(one.of(0), one.of(1))


def _quotient(one: Computed) -> Kind:
    return kind_of_quotient(one.of(0), _divisor(one))


def _divisor(one: Computed) -> Kind:
    value = tf.get_static_value(one.inputs[1])
    if one.static_rows and value is not None and np.ndim(value) == 0:
        return Kind.COUNT if value == one.static_rows else Kind.SAME
    return one.of(1)


def _by_element(one: Computed) -> Kind:
    kinds = one.of_all()
    return Kind.OTHER if kinds - {Kind.SAME, Kind.ROWS} else kind_of_sum(kinds)


def _row_by_row(rule: Callable[[Computed], Kind]) -> Callable[[Computed], Kind]:
    """Apply a rule unless an input is broadcast along the rows of another one."""

    def checked(one: Computed) -> Kind:
        rows = [part for part in one.inputs if one.kind_of(part) is Kind.ROWS]
        return Kind.OTHER if len({part.shape.rank for part in rows}) > 1 else rule(one)

    return checked


_RULES: dict[str, Callable[[Computed], Kind | None]] = {
    **dict.fromkeys(KIND_PRESERVING, _preserved),
    "IdentityN": _passed_on,
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(("Shape", "Size"), _size),
    "StridedSlice": _slice_of_sizes,
    **dict.fromkeys(("BroadcastTo", "Tile"), _repeated),
    "Range": _range,
    **dict.fromkeys(("ConcatV2", "Pack"), _packed),
    **dict.fromkeys(ADDITIONS, _row_by_row(_sum)),
    "Mul": _row_by_row(_product),
    **dict.fromkeys(DIVISIONS, _row_by_row(_quotient)),
    **dict.fromkeys(ELEMENTWISE, _row_by_row(_by_element)),
}
