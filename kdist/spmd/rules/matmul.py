"""Matrix products; if a product sums over the rows, every replica has one term of the sum."""

from __future__ import annotations

from string import digits

from ..operation import Decision, Form, Operation, rule
from ..placements import PARTIAL, REPLICATE, ListOf, Shard
from .elementwise import name_axes


@rule("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
def contraction(op: Operation) -> Decision | None:
    """Divide a product along the axis of the rows: it keeps this axis, or sums over this axis."""
    if not op.any_shard or any(isinstance(p, ListOf) for p in op.placements):
        return None
    found = _label_axes(op)
    if found is None:
        return None
    parts, out = found
    if any(len(set(part)) != len(part) for part in (*parts, out)):
        return None
    shards = {index: p for index, p in enumerate(op.placements) if isinstance(p, Shard)}
    labels = {index: parts[index][shard.axis] for index, shard in shards.items()}
    # An input with rows that stay in the result comes first, so that less is gathered.
    main = min(labels, key=lambda index: labels[index] not in out)
    label, rows = labels[main], shards[main].rows
    placement = Shard(out.index(label), rows) if label in out else None
    name_axes(op, op.outputs[0], parts, out, placement)
    forms: list[Form] = []
    for index, part in enumerate(parts):
        if index == main:
            forms.append(shards[main])
        elif label not in part:
            forms.append(REPLICATE)
        else:
            wanted = Shard(part.index(label), rows)
            forms.append(op.rows_form(index, wanted, may_broadcast=label.isdigit()))
    return Decision(forms, [placement or PARTIAL])


def _label_axes(op: Operation) -> tuple[list[str], str] | None:
    """Return a label for each axis of the inputs and of the result; digits may broadcast."""
    if op.type == "Einsum":
        return _label_equation(op)
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


def _label_equation(op: Operation) -> tuple[list[str], str] | None:
    """Return the labels of an equation, with digits for the axes of `...`."""
    left, out = op.attr("equation").decode().replace(" ", "").split("->")
    parts = left.split(",")
    if "..." not in left:
        return parts, out
    ranks = [rank for index in range(len(parts)) if (rank := op.rank(index)) is not None]
    if len(ranks) < len(parts):
        return None
    named = [len(part.replace("...", "")) for part in parts]
    extra = [rank - count for rank, count in zip(ranks, named, strict=True)]
    batch = digits[: max(extra)]
    # Axes of `...` are counted from the last axis.
    filled = [
        part.replace("...", batch[len(batch) - count :])
        for part, count in zip(parts, extra, strict=True)
    ]
    return filled, out.replace("...", batch)
