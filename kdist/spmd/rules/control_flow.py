"""Loops, conditions and calls of what only XLA can compute.

Their bodies are divided, if that needs no values of other replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..placements import (
    AS_IS,
    PARTIAL,
    REPLICATE,
    ListOf,
    Partial,
    Placement,
    Replicate,
    Rows,
    Shard,
)
from ..plan import (
    ComputeWholeError,
    Decision,
    NeedsCollectiveError,
    Operation,
    Planner,
    is_never_used,
    live_operations,
)
from ..sizes import Space
from . import rule
from .lists import equal_sizes


def _plan(
    op: Operation,
    graph: Any,
    placements: Sequence[Placement],
    sizes: Sequence[Any],
    inputs: Sequence[Any],
    *,
    is_compiled: bool = False,
) -> Planner:
    """Plan a body for inputs of these placements; its assumptions hold `assuming` them only."""
    whole: set[Any] = set()
    merges = len(op.planner.merges)
    while True:
        planner = Planner(
            op.planner,
            whole | op.planner.whole,
            is_conditional=not is_compiled,
            can_check=not is_compiled,
        )
        for inner, outer, placement, size in zip(
            graph.inputs, inputs, placements, sizes, strict=True
        ):
            planner.set_input(inner, placement, size)
            if id(outer) in op.planner.shared:
                planner.shared.add(id(inner))
        try:
            planner.run(o for o in live_operations(graph, graph.outputs) if o.type != "Placeholder")
        except ComputeWholeError as error:
            mine = error.operations & set(graph.get_operations())
            if mine != error.operations:
                raise ComputeWholeError(error.operations - mine) from None
            whole |= mine
            op.planner.undo_merges(merges)
            continue
        finally:
            planner.suspend()
        return planner


def _demand(planner: Planner, outputs: Sequence[Any], wants: Sequence[Any]) -> None:
    """Ask for the results of a body as all its bodies, or iterations, return them."""
    with planner.assuming():
        for output, want in zip(outputs, wants, strict=True):
            _check_rows(planner, output, want)
            planner.demand(output, planner.placement(output), want)


def _join(a: Placement, b: Placement) -> Placement:
    """Return the placement of a value that has either of two."""
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        if a.element is None or b.element is None:
            known = a if a.element is not None else b
            return ListOf(known.element, a.origin, known.sizes)
        if a.element == b.element and equal_sizes(a.sizes, b.sizes):
            return a
        raise ComputeWholeError({a.origin})
    if isinstance(a, Shard) and isinstance(b, Shard):
        if a.fits(b) or b.fits(a):
            return a.plain() if b.uniform else b.plain()
    elif isinstance(a, Shard) and isinstance(b, Replicate):
        return a.plain()
    elif isinstance(b, Shard) and isinstance(a, Replicate):
        return b.plain()
    elif a == b or (a in (PARTIAL, REPLICATE) and b in (PARTIAL, REPLICATE)):
        return a if isinstance(a, Partial) else b
    raise NeedsCollectiveError("the placements differ")


def _rows_of_any(output: Any, branches: Sequence[Placement]) -> Shard | None:
    """Return the placement of a result that has the rows of another batch in each branch.

    A replica has its rows of any of them; how many these are is known once the branch has run.
    """
    shards = [p for p in branches if isinstance(p, Shard) and len(p.rows.segments) == 1]
    is_same = all(p.fits(shards[0]) or shards[0].fits(p) for p in shards)
    if is_same or len(shards) < len(branches) or len({p.axis for p in shards}) > 1:
        return None
    axis = shards[0].axis
    return Shard(axis, Rows(((Space(f"the rows of {output.name}", source=(output, axis)), 1),)))


def _check_rows(planner: Planner, tensor: Any, want: Any) -> None:
    """Make sure that a tensor that is to be divided has the rows of the batch."""
    is_whole = isinstance(planner.placement(tensor), Replicate) and not is_never_used(tensor)
    if isinstance(want, Shard) and is_whole:
        dims = planner.dims(tensor)
        if dims is None or not want.rows.is_total(dims[want.axis]):
            raise NeedsCollectiveError(f"{tensor.name} may have another number of rows")


def _same(a: Placement, b: Placement) -> bool:
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return a.element == b.element
    return a == b


def _want(placement: Placement) -> Any:
    return AS_IS if isinstance(placement, ListOf) else placement


def _plain(placement: Placement) -> Placement:
    return placement.plain() if isinstance(placement, Shard) else placement


def _is_single(tensor: Any, axis: int) -> bool:
    return bool(tensor.shape.rank is not None and tensor.shape[axis] == 1)


def _whole(op: Operation) -> Decision | None:
    """Compute all of an operation, and lists that it has whole, too."""
    lists = {p.origin for p in op.placements if isinstance(p, ListOf)}
    if lists:
        raise ComputeWholeError(lists)
    return None


def _passes(output: Any, given: Any) -> bool:
    """Whether a body returns an input as it is."""
    while output is not given and output.op.type == "Identity":
        output = output.op.inputs[0]
    return output is given


@rule("While", "StatelessWhile")
def loop(op: Operation) -> Decision | None:
    """Divide a loop, with the placements of its variables that each iteration keeps."""
    return _divided(op, _loop, op.placements)


def _divided(op: Operation, divide: Any, placements: Sequence[Placement]) -> Decision | None:
    """Divide a loop or condition; if its body needs sums over replicas, they are made before."""
    merges = len(op.planner.merges)
    try:
        return divide(op, placements)  # type: ignore[no-any-return]
    except NeedsCollectiveError:
        op.planner.undo_merges(merges)
        reduced = [
            (op.planner.division(t) or REPLICATE) if isinstance(p, Partial) else p
            for t, p in zip(op.inputs, placements, strict=True)
        ]
        if reduced != list(placements):
            return _divided(op, divide, reduced)
        return _whole(op)  # its body needs values of all replicas


def _loop(op: Operation, given: Sequence[Placement]) -> Decision | None:
    if all(isinstance(p, Replicate) for p in op.placements):
        return None
    if op.planner.effects(op.op)[0]:
        return _whole(op)  # its body has effects
    body = op.planner.bodies.of(op.op, op.attr("body").name, op.op.outputs)
    condition = op.planner.bodies.of(op.op, op.attr("cond").name, op.op.outputs)
    kept = [_passes(o, i) for o, i in zip(body.outputs, body.inputs, strict=True)]
    placements = [_plain(p) for p in given]
    sizes = [op.sizes(i) if k else None for i, k in enumerate(kept)]
    for _ in range(10):
        planner = _plan(op, body, placements, sizes, op.inputs)
        with planner.assuming():
            joined = [
                p if k else _join(p, planner.placement(o))
                for p, o, k in zip(placements, body.outputs, kept, strict=True)
            ]
            if all(map(_same, joined, placements)):
                break
        others = [not isinstance(p, ListOf) for p in placements]
        settled = all(_same(a, b) for a, b, o in zip(joined, placements, others, strict=True) if o)
        # What is put into a list follows from the other variables, so these are settled first.
        placements = [
            _plain(a) if settled or o else b
            for a, b, o in zip(joined, placements, others, strict=True)
        ]
    else:
        return _whole(op)  # the placements of its variables change
    wants = [_want(p) for p in placements]
    changed = [(o, w) for o, w, keep in zip(body.outputs, wants, kept, strict=True) if not keep]
    for tensor, placement in zip(op.inputs, placements, strict=True):
        _check_rows(op.planner, tensor, placement)
    _demand(planner, [o for o, _ in changed], [w for _, w in changed])
    conditions = _plan(op, condition, placements, sizes, op.inputs)
    if not isinstance(conditions.placement(condition.outputs[0]), Replicate):
        return _whole(op)  # the replicas may end it at different times
    sources = [i if k else None for i, k in enumerate(kept)]

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        like = [(o, i) for o, i in zip(op.outputs, inputs, strict=True)]
        made = stage.body(planner, body, like, wants, sources)
        test = stage.body(conditions, condition, like, [REPLICATE], [None], is_condition=True)
        return stage.call_loop(op, inputs, made, test)  # type: ignore[no-any-return]

    for output, size in zip(op.outputs, sizes, strict=True):
        if size is not None:
            op.planner.set_sizes(output, size)
    return Decision(wants, placements, emit, bodies=[planner])


@rule("If", "StatelessIf", "Case", "StatelessCase")
def condition(op: Operation) -> Decision | None:
    """Divide all branches of a condition that the replicas agree on."""
    return _divided(op, _condition, op.placements)


def _condition(op: Operation, given: Sequence[Placement]) -> Decision | None:
    inputs = op.inputs[1:]
    if all(isinstance(p, Replicate) for p in op.placements[1:]):
        return None
    if op.planner.effects(op.op)[0]:
        return _whole(op)  # its body has effects
    is_case = "Case" in op.type
    called = op.attr("branches") if is_case else [op.attr("then_branch"), op.attr("else_branch")]
    graphs = [op.planner.bodies.of(op.op, branch.name, inputs) for branch in called]
    placements = list(given[1:])
    sizes = [op.sizes(i + 1) for i in range(len(inputs))]
    planners = [_plan(op, graph, placements, sizes, inputs) for graph in graphs]
    out: list[Placement] = []
    wants: list[Any] = []
    for at in range(len(op.outputs)):
        made = [(p, p.canonical(g.outputs[at])) for p, g in zip(planners, graphs, strict=True)]
        known = [p.placement(t) for p, t in made if not is_never_used(t)]
        if own := _rows_of_any(op.outputs[at], known):
            out.append(own)
            wants.append(AS_IS)
            continue
        joined = _plain(functools.reduce(_join, known) if known else REPLICATE)
        if isinstance(joined, Shard) and any(_is_single(t, joined.axis) for _, t in made):
            return _whole(op)  # another branch has a single row
        out.append(joined)
        wants.append(_want(joined))
    for planner, graph in zip(planners, graphs, strict=True):
        _demand(planner, graph.outputs, wants)

    def emit(stage: Any, op: Any, values: Sequence[Any]) -> Sequence[Any]:
        like = [(t, i) for t, i in zip(op.inputs[1:], values[1:], strict=True)]
        branches = [
            stage.body(planner, graph, like, wants, [None] * len(wants))
            for planner, graph in zip(planners, graphs, strict=True)
        ]
        return stage.call_condition(op, values, branches)  # type: ignore[no-any-return]

    return Decision([REPLICATE, *_wants(op.placements[1:], placements)], out, emit, bodies=planners)


@rule("XlaCall")
def call(op: Operation) -> Decision | None:
    """Divide a function that XLA has to compile as one, such as a convolution in groups."""
    return _divided(op, _call, op.placements)


def _call(op: Operation, given: Sequence[Placement]) -> Decision | None:
    if all(isinstance(p, Replicate) for p in op.placements):
        return None
    if op.planner.effects(op.op)[0]:
        return _whole(op)  # it has effects
    graph = op.planner.bodies.of(op.op, op.attr("f").name, op.inputs)
    sizes = [op.sizes(i) for i in range(len(op.inputs))]
    planner = _plan(op, graph, given, sizes, op.inputs, is_compiled=True)
    out = [_plain(planner.placement(planner.canonical(t))) for t in graph.outputs]
    wants = [_want(p) for p in out]
    _demand(planner, graph.outputs, wants)

    def emit(stage: Any, op: Any, values: Sequence[Any]) -> Sequence[Any]:
        like = [(t, v) for t, v in zip(op.inputs, values, strict=True)]
        body = stage.body(planner, graph, like, wants, [None] * len(wants), is_compiled=True)
        return stage.call_xla(op, values, body)  # type: ignore[no-any-return]

    return Decision(_wants(op.placements, given), out, emit, bodies=[planner])


def _wants(placements: Sequence[Placement], given: Sequence[Placement]) -> list[Any]:
    """Return how inputs are wanted, from how they are and how the body is planned for them."""
    return [
        AS_IS if isinstance(one, ListOf) or (isinstance(one, Shard) and one == own) else one
        for own, one in zip(placements, given, strict=True)
    ]
