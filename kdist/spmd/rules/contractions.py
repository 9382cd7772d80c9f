"""Products that sum over an axis: over that of the rows, every replica has a part of the sum."""

from __future__ import annotations

from string import digits
from typing import Any

from ..operation import Decision, LocalRows, Operation, rule
from ..placements import PARTIAL, REPLICATE, ListOf, Shard
from ..sizes import AnySize, AxisSize, symbolic


@rule("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
def contraction(op: Operation) -> Decision | None:
    """Divide a product along the axis of the rows, which it keeps or sums over."""
    if not op.any_shard or any(isinstance(p, ListOf) for p in op.placements):
        return None
    found = _labels(op)
    if found is None:
        return None
    parts, out = found
    if any(len(set(part)) != len(part) for part in (*parts, out)):
        return None
    labels = {
        index: parts[index][p.axis] for index, p in enumerate(op.placements) if isinstance(p, Shard)
    }
    # An input with rows that the result has comes first, so that less is gathered.
    main = min(labels, key=lambda index: labels[index] not in out)
    label, shard = labels[main], op.placements[main]
    _name_axes(op, parts, out, label, shard.rows.total)  # type: ignore[attr-defined]
    forms: list[Any] = []
    for index, (part, placement) in enumerate(zip(parts, op.placements, strict=True)):
        if index == main:
            forms.append(placement)
        elif label not in part:
            forms.append(REPLICATE)
        else:
            axis = part.index(label)
            want = shard.at(axis).plain()  # type: ignore[attr-defined]
            may_broadcast = label.isdigit()
            if may_broadcast and op.inputs[index].shape[axis] == 1:
                forms.append(REPLICATE)
            elif op.align(placement, want):
                forms.append(placement)
            else:
                forms.append(LocalRows(want) if may_broadcast else want)
    if label not in out:
        return Decision(forms, [PARTIAL])
    return Decision(forms, [Shard(out.index(label), shard.rows)])  # type: ignore[attr-defined]


def _name_axes(op: Operation, parts: list[str], out: str, rows: str, total: AnySize) -> None:
    """Set unknown sizes of the result from the inputs' axes with the same labels.

    Args:
        op: The product.
        parts: The labels of its inputs.
        out: The labels of its result.
        rows: The label of the divided axis.
        total: How many rows that axis has.
    """
    dims, output = [op.dims(index) for index in range(len(parts))], op.outputs[0]
    if output.shape.rank != len(out) or output.shape.is_fully_defined() or None in dims:
        return
    sizes: list[AnySize] = []
    for axis, label in enumerate(out):
        pairs = [
            (part.index(label), d) for part, d in zip(parts, dims, strict=True) if label in part
        ]
        found = [d[place] for place, d in pairs]  # type: ignore[index]
        if label == rows:
            found = [total]
        elif label.isdigit():  # a single row is broadcast
            found = [size for size in found if size != 1] or [1]
        known = [size for size in found if isinstance(size, int)]
        is_certain = known or not label.isdigit() or all(size == found[0] for size in found)
        sizes.append([*known, *found][0] if is_certain else symbolic(AxisSize(output, axis)))
    op.set_dims(output, sizes)


def _labels(op: Operation) -> tuple[list[str], str] | None:
    """Return a label for each axis of the inputs and of the result; digits may broadcast."""
    if op.type == "Einsum":
        return _equation_labels(op)
    known = [2, 2] if op.type == "MatMul" else [op.rank(0), op.rank(1)]
    ranks = [rank for rank in known if rank is not None]
    if len(ranks) < 2:
        return None
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    first, second = (op.attr(name) for name in names)
    batch = digits[: max(ranks) - 2]
    a = batch[len(batch) - (ranks[0] - 2) :] + ("ki" if first else "ik")
    b = batch[len(batch) - (ranks[1] - 2) :] + ("jk" if second else "kj")
    return [a, b], batch + "ij"


def _equation_labels(op: Operation) -> tuple[list[str], str] | None:
    """Return the labels of an equation, with digits for the axes of `...`."""
    left, out = op.attr("equation").decode().replace(" ", "").split("->")
    parts = left.split(",")
    if "..." not in left:
        return parts, out
    ranks = [op.rank(index) for index in range(len(parts))]
    if None in ranks:
        return None
    named = [len(part.replace("...", "")) for part in parts]
    extra = [rank - count for rank, count in zip(ranks, named, strict=True)]  # type: ignore[operator]
    batch = digits[: max(extra)]
    # Axes of `...` are counted from the last one.
    filled = [
        part.replace("...", batch[len(batch) - count :])
        for part, count in zip(parts, extra, strict=True)
    ]
    return filled, out.replace("...", batch)
