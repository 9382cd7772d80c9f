"""Operations whose result depends on several samples."""

from .. import _upstream
from .computed import Computed
from .operations import (
    MIXES_ROWS,
    MIXES_ROWS_OF_MATRIX,
    REORDERS_ROWS,
    keeps_first_axis,
    shares_batch,
)
from .reduction_kinds import Kind


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
        return one.of(0) is Kind.ROWS and _upstream.is_along_rows(axis, inputs[0])
    if kind in ("StridedSlice", "Slice", "Split", "SplitV", "Unpack"):
        if kind == "Slice" and one.of(2) is Kind.COUNT:
            return False  # it takes as many rows as the batch has
        rows = one.of(1 if kind == "Split" else 0)
        return rows is Kind.ROWS and not _upstream.takes_all_rows(operation)
    if kind in MIXES_ROWS_OF_MATRIX:
        return inputs[0].shape.rank in (None, 2)
    return kind in MIXES_ROWS


def pairs_samples(one: Computed) -> bool:
    """Whether each value depends on several samples, as in a matrix product of the batch by itself.

    A part of what `mixes_rows` finds, where this is certain: not only another order of the axes.
    """
    return mixes_rows(one) and _certainly_mixes(one)


def _certainly_mixes(one: Computed) -> bool:
    operation, inputs = one.operation, one.inputs
    kind = operation.type
    if kind in ("MatMul", "Einsum"):
        kinds = [one.kind_of(part) for part in inputs]
        has_factors = len([one for one in kinds if one is not Kind.SAME]) > 1
        return has_factors and not (kind == "Einsum" and shares_batch(operation, kinds))
    if kind == "GatherV2":
        # From the reshaped rows of sequences, each sample may take those of its own sequence.
        is_order = one.of(1) is Kind.PAIRS or _upstream.is_an_order(inputs[1])
        return is_order and inputs[0].op.type != "Reshape"
    if kind == "StridedSlice":
        return _upstream.is_reversed(operation)
    if kind in ("Softmax", "LogSoftmax", "TopKV2", "Cumsum"):
        # Integers may be added up to the bounds of ragged rows.
        return one.of(0) is Kind.ROWS and inputs[0].dtype.is_floating
    return kind == "Split" or kind in REORDERS_ROWS
