"""Loops, conditions and calls of functions that only XLA can compute.

Their bodies are divided, unless a body needs values of other replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from ..op_types import CONDITIONS
from ..operation import LOCAL, ComputeWholeError, Decision, Form, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, ListOf, Partial, Placement, Replicate, Shard
from ..plan import GraphPlan, is_fake, is_single_row, live_operations
from ..redistribute import Conversion
from ..rows import Rows
from ..sizes import BatchAxis
from ..stage import Body, Stage
from ..tensor_facts import NeedsCollectiveError, TensorFacts
from .lists import equal_sizes

# Attempts to find placements of a loop's variables that each iteration keeps.
_MOST_ATTEMPTS = 10


@rule("While", "StatelessWhile")
def divide_loop(op: Operation) -> Decision | None:
    """Divide a loop, with placements of its variables that each iteration keeps."""
    return _divide_body(op, _plan_loop, op.placements)


@rule("If", "StatelessIf", "Case", "StatelessCase")
def divide_condition(op: Operation) -> Decision | None:
    """Divide all branches of a condition; all replicas have the same predicate."""
    return _divide_body(op, _plan_condition, op.placements)


@rule("XlaCall")
def divide_call(op: Operation) -> Decision | None:
    """Divide a function that XLA has to compile as a whole, such as a convolution in groups."""
    return _divide_body(op, _plan_call, op.placements)


def _divide_body(
    op: Operation,
    divide: Callable[[Operation, Sequence[Placement]], Decision | None],
    placements: Sequence[Placement],
) -> Decision | None:
    """Divide an operation; if its body needs values of other replicas, reduce partial inputs first.

    A partial input with the shape of a divided variable is divided like the variable; all other
    partial inputs become whole. If this is not enough, the operation is computed whole.
    """
    arguments = op.placements[op.type in CONDITIONS :]  # without the predicate
    is_whole = all(isinstance(placement, Replicate) for placement in arguments)
    if is_whole or op.facts.effects_of(op.op)[0]:
        return None
    assumed = len(op.facts.assumed)
    try:
        return divide(op, placements)
    except NeedsCollectiveError:
        op.facts.undo_assumptions(assumed)
        reduced = [
            (op.facts.variable_shard(tensor) or REPLICATE)
            if isinstance(placement, Partial)
            else placement
            for tensor, placement in zip(op.inputs, placements, strict=True)
        ]
        if reduced != list(placements):
            return _divide_body(op, divide, reduced)
        return None  # The body needs values of all replicas.


# Plans of bodies


def _plan_body(
    op: Operation,
    graph: tf.Graph,
    placements: Sequence[Placement],
    sizes: Sequence[object],
    inputs: Tensors,
    *,
    is_compiled: bool = False,
) -> GraphPlan:
    """Plan a body for inputs of given placements; its assumptions are suspended afterwards."""
    parent = op.facts
    if not isinstance(parent, GraphPlan):
        raise TypeError(f"received {parent!r}, expected the plan of the operation's graph")
    whole: set[tf.Operation] = set()
    assumed = len(parent.assumed)
    while True:
        plan = GraphPlan(
            parent,
            whole | parent.whole,
            is_conditional=not is_compiled,
            can_check=not is_compiled,
        )
        for inner, outer, placement, size in zip(
            graph.inputs, inputs, placements, sizes, strict=True
        ):
            plan.set_input(inner, placement, size)
            if parent.is_shared(outer):
                parent.step.shared.add(inner.ref())
        operations = live_operations(graph, graph.outputs)
        try:
            plan.plan_operations(inner for inner in operations if inner.type != "Placeholder")
        except ComputeWholeError as error:
            mine = error.operations & set(graph.get_operations())
            if mine != error.operations:
                raise ComputeWholeError(error.operations - mine) from None
            whole |= mine
            parent.undo_assumptions(assumed)
            continue
        finally:
            plan.suspend_assumptions()
        return plan


def _plan_result_conversions(
    plan: GraphPlan, outputs: Tensors, forms: Sequence[Form]
) -> list[Conversion]:
    """Plan to convert a body's results to the forms that all bodies, or iterations, return."""
    conversions = []
    with plan.hold_assumptions():
        for output, form in zip(outputs, forms, strict=True):
            _check_rows(plan, output, form)
            conversions.append(plan.plan_conversion(output, form)[0])
    return conversions


def _check_rows(facts: TensorFacts, tensor: tf.Tensor, form: Form) -> None:
    """Raise `NeedsCollectiveError` if a whole tensor to be divided may lack the batch's rows."""
    is_whole = isinstance(facts.placement_of(tensor), Replicate) and not is_fake(tensor)
    if isinstance(form, Shard) and is_whole:
        dims = facts.dims_of(tensor)
        if dims is None or not form.rows.is_total(dims[form.axis]):
            raise NeedsCollectiveError(f"{tensor.name} may have another number of rows")


def _result_form(placement: Placement) -> Form:
    return LOCAL if isinstance(placement, ListOf) else placement


# Loops


def _plan_loop(op: Operation, given: Sequence[Placement]) -> Decision | None:
    bodies = op.facts.step.bodies
    body = bodies.graph_of(op.op, op.attr("body").name, op.op.outputs)
    test = bodies.graph_of(op.op, op.attr("cond").name, op.op.outputs)
    kept = [
        _returns_input(output, inner)
        for output, inner in zip(body.outputs, body.inputs, strict=True)
    ]
    sizes = [op.sizes_in(index) if is_kept else None for index, is_kept in enumerate(kept)]
    settled = _settle_placements(op, body, given, sizes, kept)
    if settled is None:
        return None  # The placements of the variables change in each iteration.
    plan, placements = settled
    forms = [*map(_result_form, placements)]
    for tensor, placement in zip(op.inputs, placements, strict=True):
        _check_rows(op.facts, tensor, placement)
    changed = [index for index, is_kept in enumerate(kept) if not is_kept]
    conversions: list[Conversion | None] = [None] * len(kept)
    found = _plan_result_conversions(
        plan, [body.outputs[i] for i in changed], [forms[i] for i in changed]
    )
    for index, conversion in zip(changed, found, strict=True):
        conversions[index] = conversion
    test_plan = _plan_body(op, test, placements, sizes, op.inputs)
    if not isinstance(test_plan.placement_of(test.outputs[0]), Replicate):
        return None  # The replicas may end the loop at different iterations.
    test_conversions = _plan_result_conversions(test_plan, test.outputs, [REPLICATE])

    def write_loop(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        pairs = list(zip(op.outputs, inputs, strict=True))
        own_body = Body(stage, plan, body, pairs, returns_numbers=True).write_body(conversions)
        own_test = Body(stage, test_plan, test, pairs).write_body(test_conversions)
        return stage.call_loop(op, inputs, own_body, own_test)

    for output, size in zip(op.outputs, sizes, strict=True):
        if size is not None:
            op.set_sizes(output, size)
    return Decision(forms, placements, write_loop, bodies=[plan])


def _settle_placements(
    op: Operation,
    body: tf.Graph,
    given: Sequence[Placement],
    sizes: Sequence[object],
    kept: Sequence[bool],
) -> tuple[GraphPlan, list[Placement]] | None:
    """Plan a loop's body until its results have the placements of its inputs."""
    placements = [placement.as_plain() for placement in given]
    for _ in range(_MOST_ATTEMPTS):
        plan = _plan_body(op, body, placements, sizes, op.inputs)
        with plan.hold_assumptions():
            joined = [
                placement if is_kept else _join_placements(placement, plan.placement_of(output))
                for placement, output, is_kept in zip(placements, body.outputs, kept, strict=True)
            ]
            pairs = list(zip(joined, placements, strict=True))
            if all(_is_same(new, old) for new, old in pairs):
                return plan, placements
        # The elements of a list follow from the variables that are no lists: settle these first.
        are_settled = all(_is_same(new, old) for new, old in pairs if not isinstance(old, ListOf))
        placements = [
            new.as_plain() if are_settled or not isinstance(old, ListOf) else old
            for new, old in pairs
        ]
    return None


def _returns_input(output: tf.Tensor, inner: tf.Tensor) -> bool:
    while output is not inner and output.op.type == "Identity":
        output = output.op.inputs[0]
    return output is inner


# Conditions


def _plan_condition(op: Operation, given: Sequence[Placement]) -> Decision | None:
    inputs = op.inputs[1:]
    is_case = "Case" in op.type
    called = op.attr("branches") if is_case else [op.attr("then_branch"), op.attr("else_branch")]
    graphs = [op.facts.step.bodies.graph_of(op.op, branch.name, inputs) for branch in called]
    placements = list(given[1:])
    sizes = [op.sizes_in(index + 1) for index in range(len(inputs))]
    plans = [_plan_body(op, graph, placements, sizes, inputs) for graph in graphs]
    results: list[Placement] = []
    forms: list[Form] = []
    for index, output in enumerate(op.outputs):
        made = [
            (plan, plan.resolve_alias(graph.outputs[index]))
            for plan, graph in zip(plans, graphs, strict=True)
        ]
        known = [plan.placement_of(tensor) for plan, tensor in made if not is_fake(tensor)]
        if rows := _place_rows_of_any(output, known):
            results.append(rows)
            forms.append(LOCAL)
            continue
        joined = functools.reduce(_join_placements, known).as_plain() if known else REPLICATE
        if isinstance(joined, Shard) and any(is_single_row(t, joined.axis) for _, t in made):
            # A branch has a single row, and a second branch the rows of the batch.
            return None
        results.append(joined)
        forms.append(_result_form(joined))
    conversions = [
        _plan_result_conversions(plan, graph.outputs, forms)
        for plan, graph in zip(plans, graphs, strict=True)
    ]

    def write_branches(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        pairs = list(zip(op.inputs[1:], inputs[1:], strict=True))
        branches = [
            Body(stage, plan, graph, pairs).write_body(own_conversions)
            for plan, graph, own_conversions in zip(plans, graphs, conversions, strict=True)
        ]
        return stage.call_condition(op, inputs, branches)

    return Decision(
        [REPLICATE, *map(_result_form, placements)], results, write_branches, bodies=plans
    )


def _place_rows_of_any(output: tf.Tensor, branches: Sequence[Placement]) -> Shard | None:
    """Return the placement of a result that has the rows of a different batch in each branch.

    A replica has its own rows of the chosen branch's batch. Their number is known once the branch
    has run.
    """
    shards = [p for p in branches if isinstance(p, Shard) and len(p.rows.segments) == 1]
    is_same = all(shard.fits(shards[0]) or shards[0].fits(shard) for shard in shards)
    axes = {shard.axis for shard in shards}
    if is_same or len(shards) < len(branches) or len(axes) > 1:
        return None
    axis = shards[0].axis
    batch_axis = BatchAxis(f"the rows of {output.name}", source=(output, axis))
    return Shard(axis, Rows(((batch_axis, 1),)))


# Calls


def _plan_call(op: Operation, given: Sequence[Placement]) -> Decision | None:
    graph = op.facts.step.bodies.graph_of(op.op, op.attr("f").name, op.inputs)
    sizes = [op.sizes_in(index) for index in range(len(op.inputs))]
    plan = _plan_body(op, graph, given, sizes, op.inputs, is_compiled=True)
    results = [plan.placement_of(output).as_plain() for output in graph.outputs]
    conversions = _plan_result_conversions(plan, graph.outputs, [*map(_result_form, results)])

    def write_call(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        pairs = list(zip(op.inputs, inputs, strict=True))
        body = Body(stage, plan, graph, pairs, is_compiled=True).write_body(conversions)
        return stage.call_xla(op, inputs, body)

    return Decision([*map(_result_form, given)], results, write_call, bodies=[plan])


# Placements of a value that several bodies make


def _join_placements(a: Placement, b: Placement) -> Placement:
    """Return the placement of a value that has the placement `a` or `b`."""
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        if a.element is None or b.element is None:
            known = a if a.element is not None else b
            return ListOf(known.element, a.origin, known.sizes)
        if a.element == b.element and equal_sizes(a.sizes, b.sizes):
            return a
        raise ComputeWholeError({a.origin})
    if isinstance(a, Shard) and isinstance(b, Shard):
        if a.fits(b) or b.fits(a):
            return a.as_plain() if b.uniform else b.as_plain()
    elif isinstance(a, Shard) and isinstance(b, Replicate):
        return a.as_plain()
    elif isinstance(b, Shard) and isinstance(a, Replicate):
        return b.as_plain()
    elif a == b or (a in (PARTIAL, REPLICATE) and b in (PARTIAL, REPLICATE)):
        return a if isinstance(a, Partial) else b
    raise NeedsCollectiveError(
        f"a loop or condition returns {a} and {b}, which have no common placement"
    )


def _is_same(a: Placement, b: Placement) -> bool:
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return a.element == b.element
    return a == b
