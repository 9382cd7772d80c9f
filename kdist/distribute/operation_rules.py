"""How the result of an operation depends on a replica's samples: a rule for each operation."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from .. import _upstream
from .block_slices import counts_batches, is_whole_batches, takes_batches
from .computed import Computed
from .operations import (
    ADDITIONS,
    DIVISIONS,
    ELEMENTWISE,
    KIND_PRESERVING,
    REDUCTIONS,
    is_zero,
    slices_first_size,
)
from .reduction_kinds import (
    Kind,
    combines_samples,
    kind_of_product,
    kind_of_quotient,
    kind_of_sum,
)


def kind_by_rule(one: Computed) -> Kind | None:
    """Return the kind of a tensor by the rule for its operation; `None` if none applies."""
    rule = _RULES.get(one.operation.type)
    return None if rule is None else rule(one)


def _preserved(one: Computed) -> Kind:
    kind = one.of(0)
    if kind is Kind.ROWS and not _keeps_rows_first(one):
        return Kind.COLUMNS if _turns_rows(one) else Kind.OTHER
    if kind is Kind.COLUMNS and one.operation.type in ("Transpose", "Reshape", "Squeeze"):
        return Kind.ROWS if one.tensor.shape.rank == 2 and _turns_rows(one) else Kind.OTHER
    return kind


def _turns_rows(one: Computed) -> bool:
    """Whether rows become columns: a matrix is transposed, or an axis put before the first one."""
    kind = one.operation.type
    return kind == "ExpandDims" or (kind == "Transpose" and bool(one.tensor.shape.rank == 2))


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
    is_mean = kind is Kind.OTHER and reduction == "Sum" and _is_divided_by_count(one)
    if is_mean:
        kind, reduction = Kind.ROWS, "Mean"
    if kind is Kind.PAIRS:
        return kind
    if kind not in (Kind.ROWS, Kind.COLUMNS):
        # A mean stays a mean if it is summed or averaged over its other axes.
        linear = reduction in ("Sum", "Mean") or kind is Kind.SAME
        return kind if linear or (reduction == "Prod" and kind is Kind.COUNT) else Kind.OTHER
    axes = 0 if reduction == "L2Loss" else _upstream.constant_value(one.inputs[1])
    rank = one.inputs[0].shape.rank
    if axes is None or rank is None:
        return Kind.OTHER
    reduced = set(np.atleast_1d(axes) % max(rank, 1))
    if kind is Kind.COLUMNS and len(reduced) < rank and reduction != "L2Loss":
        return Kind.OTHER
    if 0 not in reduced and kind is Kind.ROWS:
        return Kind.OTHER if is_mean else Kind.ROWS
    return {"Sum": Kind.SUM, "L2Loss": Kind.SUM, "Mean": Kind.MEAN}.get(reduction, Kind.OTHER)


def _is_divided_by_count(one: Computed) -> bool:
    """Whether what is summed are rows, divided by the number of samples."""
    division = one.inputs[0].op
    is_division = division.type in DIVISIONS
    return is_division and list(map(one.kind_of, division.inputs)) == [Kind.ROWS, Kind.COUNT]


def _size(one: Computed) -> Kind:
    kind = one.of(0)
    counts = kind is Kind.ROWS or (kind is not Kind.SAME and one.has_rows(one.inputs[0]))
    return Kind.COUNT if counts else Kind.SAME


def _sliced(one: Computed) -> Kind | None:
    if one.inputs[0].op.type == "Shape" or one.of(0) is Kind.COUNT:
        return one.of(0) if slices_first_size(one.operation) else Kind.SAME
    if one.of(0) in (Kind.MEAN, Kind.SUM):
        return one.of(0)
    if one.of(0) is not Kind.ROWS:
        return None
    if _upstream.puts_axis_first(one.operation):
        return Kind.COLUMNS
    return Kind.ROWS if takes_batches(one.operation, one.kind_of, one.static_rows) else None


def _split(one: Computed) -> Kind | None:
    if one.of(1) is not Kind.ROWS:
        return None
    return Kind.ROWS if takes_batches(one.operation, one.kind_of, one.static_rows) else None


def _unpacked(one: Computed) -> Kind | None:
    kind = one.of(0)
    if kind is Kind.COUNT:
        return Kind.SAME if one.tensor.value_index else kind
    return kind if kind in (Kind.MEAN, Kind.SUM) else None


def _gathered(one: Computed) -> Kind | None:
    kind, indices = one.of(0), one.inputs[1]
    if kind in (Kind.MEAN, Kind.SUM):
        # Each sample may get a value that all samples have made.
        return kind if one.of(1) is Kind.SAME else Kind.PAIRS
    if kind is Kind.OTHER:
        return kind
    if kind is not Kind.ROWS or not _upstream.is_along_rows(one.inputs[2], one.inputs[0]):
        return None
    limit = _upstream.limit_of_order(indices)
    is_whole = limit is not None and is_whole_batches(limit, one.kind_of, one.static_rows)
    return Kind.ROWS if is_whole or _upstream.is_by_sample(indices) else None


def _whole_quotient(one: Computed) -> Kind | None:
    if one.of(0) is not Kind.COUNT:
        return None
    return Kind.COUNT if counts_batches(one.operation, one.static_rows) else Kind.OTHER


def _repeated(one: Computed) -> Kind | None:
    if not one.has_rows(one.tensor):
        return None
    kind = one.of(0)
    if kind is Kind.PAIRS:
        return kind
    return Kind.ROWS if kind in (Kind.SAME, Kind.ROWS) else Kind.OTHER


def _range(one: Computed) -> Kind:
    kinds = one.of_all() - {Kind.SAME}
    if not kinds:
        return Kind.SAME
    return Kind.ROWS if kinds == {Kind.COUNT} else Kind.OTHER


def _packed(one: Computed) -> Kind:
    operation, kinds = one.operation, one.of_all() - {Kind.COUNT}
    if operation.type == "Pack" and operation.get_attr("axis") == 0 and Kind.ROWS in kinds:
        return Kind.COLUMNS if kinds <= {Kind.ROWS, Kind.SAME} else Kind.OTHER
    if Kind.ROWS in kinds and any(map(one.is_without_samples, operation.inputs)):
        return Kind.PAIRS
    return kind_of_sum(kinds)


def _sum(one: Computed) -> Kind:
    return kind_of_sum({one.kind_of(part) for part in one.inputs if not is_zero(part)})


def _product(one: Computed) -> Kind:
    return kind_of_product(one.of(0), one.of(1))


def _quotient(one: Computed) -> Kind:
    return kind_of_quotient(one.of(0), _divisor(one))


def _divisor(one: Computed) -> Kind:
    kind = one.of(1)
    if kind is not Kind.SAME or not one.static_rows:
        return kind
    value = _upstream.constant_value(one.inputs[1])
    is_number = value is not None and np.ndim(value) == 0
    return Kind.COUNT if is_number and value == one.static_rows else kind


def _by_element(one: Computed) -> Kind:
    kinds = one.of_all()
    if combines_samples(kinds):
        return Kind.PAIRS
    if kinds <= {Kind.SAME, Kind.COLUMNS}:
        return kind_of_sum(kinds)
    return Kind.OTHER if kinds - {Kind.SAME, Kind.ROWS} else kind_of_sum(kinds)


def _row_by_row(rule: Callable[[Computed], Kind]) -> Callable[[Computed], Kind]:
    """Apply a rule unless an input is broadcast along the rows of another one."""

    def checked(one: Computed) -> Kind:
        ranks = {part.shape.rank for part in one.inputs if one.kind_of(part) is Kind.ROWS}
        if len(ranks) > 1:
            return Kind.OTHER
        kind = rule(one)
        is_moved = kind is Kind.ROWS and one.tensor.shape.rank not in {None, *ranks}
        return Kind.COLUMNS if is_moved else kind

    return checked


_RULES: dict[str, Callable[[Computed], Kind | None]] = {
    **dict.fromkeys(KIND_PRESERVING, _preserved),
    "IdentityN": _passed_on,
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(("Shape", "Size"), _size),
    "StridedSlice": _sliced,
    "Split": _split,
    "FloorDiv": _whole_quotient,
    "GatherV2": _gathered,
    "Unpack": _unpacked,
    **dict.fromkeys(("BroadcastTo", "Tile"), _repeated),
    "Range": _range,
    **dict.fromkeys(("ConcatV2", "Pack"), _packed),
    **dict.fromkeys(ADDITIONS, _row_by_row(_sum)),
    "Mul": _row_by_row(_product),
    **dict.fromkeys(DIVISIONS, _row_by_row(_quotient)),
    **dict.fromkeys(ELEMENTWISE, _row_by_row(_by_element)),
}
