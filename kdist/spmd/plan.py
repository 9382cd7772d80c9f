"""Plan a traced step: the placement and stage of every tensor, and the exchanges between stages.

The step was traced as the program of one device that sees the global batch. A plan visits the
operations once, in order (`GraphPlan.visit`). The rule of an operation's type decides how the
operation is divided, or all rows are gathered and every replica computes the whole operation. Each
input then has a way to its wanted form (`redistribute.py`). Tensors may have to be exchanged for
the way, and the operation runs in the first stage that has all of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from .effects import handle_source
from .functionalize import functionalize, functionalized_inputs, read_variable
from .functions import hold_back, is_compiled, kernel_of
from .op_types import CALLS, FUNCTION_CALLS, PLAIN, QUIET, READS
from .operation import (
    LOCAL,
    ComputeWholeError,
    Decision,
    Form,
    LocalSizes,
    LocalValue,
    Operation,
    Rewrite,
    find_rule,
)
from .placements import REPLICATE, ListOf, Opaque, Partial, Placement, Replicate, Shard
from .redistribute import (
    KEEP,
    Keep,
    SliceRows,
    TakeRowsOfSum,
    TakeWeight,
    Way,
    WriteSizes,
    gathers_rows,
    settle_way,
    way_to,
)
from .tensor_facts import INPUTS, NeedsCollectiveError, Ref, StageNumber, StepFacts, TensorFacts


@dataclass(eq=False)
class PlannedOperation:
    """An operation with its place in the plan.

    Attributes:
        op: The operation of the traced step.
        decision: How the operation is computed.
        inputs: The canonical tensors of its inputs (`TensorFacts.canonical`).
        placements: The placements of the inputs.
        ways: The ways from the placements to the wanted forms.
        stage: The stage of the operation.
        controls: Operations that have to run before.
        is_undivided: Whether the operation has no rule, or its rule is not certain.
        changes_variables: Whether the operation changes a variable with a copy or a part on every
            replica.
    """

    op: tf.Operation
    decision: Decision
    inputs: list[tf.Tensor]
    placements: Sequence[Placement]
    ways: Sequence[Way]
    stage: StageNumber
    controls: list[tf.Operation] = field(default_factory=list)
    is_undivided: bool = False
    changes_variables: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every replica computes all rows, although the operation does not need all rows.

        `Decision.needs_all_rows` marks operations that need all rows by their nature.
        """
        pairs = zip(self.placements, self.ways, strict=True)
        gathers = any(gathers_rows(placement, way) for placement, way in pairs)
        has_rows = any(isinstance(placement, Shard) for placement in self.placements)
        return (gathers and not self.decision.needs_all_rows) or (self.is_undivided and has_rows)


@dataclass(eq=False)
class PlannedExchange:
    """The exchange of a tensor: a single exchange for all operations that read the result.

    Attributes:
        tensor: The tensor.
        stage: The beginning of the first round in which the tensor can be exchanged; a sum may be
            exchanged later.
        shard: The division of a sum's rows, if each replica gets only its rows of the sum; `None`
            if every replica gets the whole tensor.
        is_weight: Whether the tensor is a divided weight, gathered for the stage of this round
            alone.
    """

    tensor: tf.Tensor
    stage: StageNumber
    shard: Shard | None = None
    is_weight: bool = False


class GraphPlan(TensorFacts):
    """Plan of a traced graph, or of the body of a loop or condition in it.

    Args:
        parent: The plan of the graph that contains the body.
        whole: Operations that have to be computed whole.
        step: Facts of the whole step.
        is_conditional: Whether the graph is a body that may not run.
        can_check: Whether the graph can have checks, operations that fail the step: XLA leaves them
            out.

    Attributes:
        operations: The planned operations, in order.
        makers: For each tensor, the operation that makes the tensor, in the order of the step.
        exchanges: The exchanges for all later stages.
        weights: The gathers of divided weights, by the round of their stage.
    """

    parent: GraphPlan | None

    def __init__(
        self,
        parent: GraphPlan | None = None,
        whole: Iterable[tf.Operation] = (),
        step: StepFacts | None = None,
        *,
        is_conditional: bool = False,
        can_check: bool = True,
    ) -> None:
        super().__init__(parent, step, is_conditional=is_conditional, can_check=can_check)
        self.whole = set(whole)
        self.operations: list[PlannedOperation] = []
        self.exchanges: dict[Ref, PlannedExchange] = {}
        self.weights: dict[int, dict[Ref, PlannedExchange]] = {}
        self.makers: dict[Ref, PlannedOperation] = {}
        self._stage_of_op: dict[tf.Operation, StageNumber] = {}
        self._changed_at: dict[Ref, StageNumber] = {}  # the last change of each variable
        # For each inlined call or rewritten operation, the stateful operations in its place.
        self._inlined: dict[tf.Operation, list[tf.Operation]] = {}
        # For each operation that runs once, the assignments of its changed states to all replicas.
        self._copies: dict[tf.Operation, list[tf.Operation]] = {}
        self._calls: list[tf.Operation] = []  # Calls that are being inlined.

    def all_exchanges(self) -> list[PlannedExchange]:
        """Return all exchanges, of divided weights too."""
        weights = (gather for gathers in self.weights.values() for gather in gathers.values())
        return [*self.exchanges.values(), *weights]

    # Operations

    def plan_operations(self, operations: Iterable[tf.Operation]) -> None:
        """Plan operations, sorted so that each operation comes after all that it depends on."""
        for op in operations:
            self.visit(op)

    def visit(self, op: tf.Operation, earliest: StageNumber = INPUTS) -> None:
        """Plan an operation for the stage `earliest` or a later stage."""
        if _is_plain_call(op):
            self._inline(op, earliest)
        elif op.type == "Identity" and op.inputs[0].dtype == tf.resource:
            self.set_alias(op.outputs[0], op.inputs[0])
        elif (make := self._without_variables(op)) is not None:
            self._rewrite(op, make, earliest)
        else:
            operation = Operation(self, op)
            decision = self._decide(operation)
            if isinstance(decision, Rewrite):
                self._rewrite(op, decision.make, earliest)
            elif decision is None:
                self._plan_whole(operation, earliest)
            else:
                self._plan(operation, decision, earliest)

    def _without_variables(self, op: tf.Operation) -> Callable[[], Sequence[tf.Tensor]] | None:
        """Return a function that writes an operation without variables; `None` to keep variables.

        An operation that changes variables in its body, or takes a divided variable, cannot keep
        them. Within a body no operation has such variables: they were taken out of the loop,
        condition or call.
        """
        if self.parent is not None or op.type in PLAIN:
            return None
        divided = [self.is_divided(tensor) for tensor in op.inputs]
        if op in self.step.bodies.rewritten or functionalized_inputs(op, divided):
            return lambda: functionalize(op, divided)
        return None

    def _decide(self, operation: Operation) -> Decision | Rewrite | None:
        """Return how an operation is divided; `None` if every replica computes all of it."""
        find = None if operation.op in self.whole else find_rule(operation.op)
        decision = find(operation) if find else None
        if not isinstance(decision, Decision):
            return decision
        # A batch that is known to have a single row is not divided: every replica has that row, as
        # with an input of a single row (`partition._set_inputs`).
        is_one_row = any(map(_is_one_row, operation.outputs, decision.output_placements))
        return None if is_one_row else decision

    def _plan_whole(self, operation: Operation, earliest: StageNumber) -> None:
        """Plan a whole operation: on every replica, or on the first replica if it must run once."""
        op = operation.op
        once, changed = self.find_effects(op)
        wanted, results = [REPLICATE] * len(operation.inputs), [REPLICATE] * len(op.outputs)
        decision = Decision(wanted, results, on_one_replica=once)
        planned = self._plan(operation, decision, earliest)
        planned.is_undivided = True
        if once:
            self._copy_states(op, changed, planned.stage)

    def _plan(
        self, operation: Operation, decision: Decision, earliest: StageNumber
    ) -> PlannedOperation:
        op, inputs, placements = operation.op, operation.inputs, operation.placements
        stage = self._after_controls(op, earliest)
        ways: list[Way] = []
        weights: dict[int, tf.Tensor] = {}
        for index, (tensor, form) in enumerate(zip(inputs, decision.input_forms, strict=True)):
            if index in operation.weights and isinstance(form, LocalValue):
                form = REPLICATE
            if not decision.on_one_replica and self._is_wanted_weight(tensor, form):
                weights[index] = tensor
                ways.append(KEEP)
                continue
            way, available = self.plan_way(tensor, form)
            ways.append(way)
            stage = max(stage, available)
        for size in decision.needs:
            stage = max(stage, self.count_rows(size))
        once = decision.on_one_replica
        changes = self.parent is None and not once and bool(self.effects(op)[1])
        stage = stage.first(on_every_replica=not once)
        if weights:
            stage = self._gather_weights([*weights.values()], stage)
            for index in weights:
                ways[index] = TakeWeight(stage.round)
        if self.step.in_fixed_order and self.parent is None:
            stage = self._after_changes(inputs, stage, changes)
        if op.type == "Const":
            stage = INPUTS
        controls = self._controls(op)
        planned = PlannedOperation(
            op, decision, inputs, placements, ways, stage, controls, changes_variables=changes
        )
        self._add(planned)
        if once:
            self.step.shared |= {t.ref() for t in op.outputs if t.dtype == tf.resource}
        return planned

    def _add(self, planned: PlannedOperation) -> None:
        self.operations.append(planned)
        self._stage_of_op[planned.op] = planned.stage
        placements = planned.decision.output_placements
        for output, placement in zip(planned.op.outputs, placements, strict=True):
            if output.ref() not in self._aliases:
                self.set_tensor(output, placement, planned.stage)
                self.makers[output.ref()] = planned

    # Order and effects

    def _after_controls(self, op: tf.Operation, earliest: StageNumber) -> StageNumber:
        return max([earliest, *(self._stage_of_op.get(c, INPUTS) for c in op.control_inputs)])

    def _after_changes(
        self, inputs: Sequence[tf.Tensor], stage: StageNumber, changes: bool
    ) -> StageNumber:
        """Return the stage of an operation: after the stage that changes a variable it reads."""
        handles = [tensor.ref() for tensor in inputs if tensor.dtype == tf.resource]
        if changes:
            self._changed_at.update(dict.fromkeys(handles, stage))
            return stage
        is_changed = stage in [self._changed_at.get(handle, INPUTS) for handle in handles]
        return stage.next if is_changed else stage

    def find_effects(self, op: tf.Operation) -> tuple[bool, list[tf.Tensor]]:
        """Return whether an operation must run once, and the replicas' states that it changes."""
        once, changed = self.effects(op)
        # An operation that changes a variable, has no results and is no call can run on every
        # replica. A call, or an operation with results, changes the variable on the first replica,
        # and the new value is copied to the other replicas.
        once = once or bool(changed and (op.type in CALLS or op.outputs))
        if once and self.parent is not None:
            raise NeedsCollectiveError(f"to run once {op.name}")
        handles = [self.canonical(op.inputs[index]) for index in sorted(changed)]
        return once, [handle for handle in handles if not self.is_shared(handle)]

    def _copy_states(
        self, op: tf.Operation, handles: Sequence[tf.Tensor], stage: StageNumber
    ) -> None:
        """Copy the variables that an operation changed on the first replica to all replicas."""
        behind = stage.first(on_every_replica=True)
        for handle in handles:
            with handle.graph.as_default():
                value = read_variable(handle, handle)
                assigned = gen_resource_variable_ops.assign_variable_op(handle, value)
            read, change = Decision([LOCAL], [REPLICATE]), Decision([LOCAL, REPLICATE], [])
            self._add(PlannedOperation(value.op, read, [handle], [REPLICATE], [KEEP], stage, [op]))
            inputs, placements, ways = [handle, value], [REPLICATE] * 2, [KEEP] * 2
            planned = PlannedOperation(assigned, change, inputs, placements, ways, behind, [op])
            planned.changes_variables = True
            self._add(planned)
            self._changed_at[handle.ref()] = behind
            self._copies.setdefault(op, []).append(assigned)
            self._stage_of_op[op] = behind

    def _controls(self, op: tf.Operation) -> list[tf.Operation]:
        """Return the operations that have to run before `op`."""
        found = list(op.control_inputs)
        if op.op_def.is_stateful:
            for call in self._calls:
                found += call.control_inputs
        result: list[tf.Operation] = []
        while found:
            control = found.pop()
            if control in self._inlined:
                found += self._inlined[control]
            else:
                result += [control, *self._copies.get(control, ())]
        return result

    # Redistribution

    def plan_way(self, tensor: tf.Tensor, form: Form) -> tuple[Way, StageNumber]:
        """Plan a tensor's way to a wanted form; return the way, and its first possible stage."""
        available, tensor = self.stage_of(tensor), self.canonical(tensor)
        placement = self.placement(tensor)
        if is_fake(tensor) and not isinstance(form, LocalSizes):  # No replica reads the tensor.
            return KEEP, available
        way = way_to(form, placement, self.variable_shard(tensor))
        if isinstance(way, WriteSizes):
            return way, max([available, *(self.count_rows(rows) for _, rows in way.rows)])
        if isinstance(placement, Opaque) and form != placement:
            raise ComputeWholeError({placement.origin})
        if isinstance(way, Keep):
            return KEEP, available
        if isinstance(placement, ListOf):
            raise ComputeWholeError({placement.origin})
        if isinstance(way, SliceRows | TakeRowsOfSum):
            available = max(available, self.count_rows(way.shard.rows))
        if isinstance(way, TakeRowsOfSum):
            return way, max(available, self._exchange(tensor, way.shard))
        if isinstance(placement, Replicate):
            return way, available
        if isinstance(placement, Shard | Partial):
            return way, max(available, self._exchange_whole(tensor, placement))
        raise TypeError(f"no exchange is known of the placement {placement} of {tensor.name}")

    def settle_ways(self) -> None:
        """Keep inputs that are divided as wanted, now that all batches are merged.

        An exchange that was planned only for a kept input is not written.
        """
        for planned in self.operations:
            pairs = zip(planned.placements, planned.ways, strict=True)
            planned.ways = [settle_way(placement, way) for placement, way in pairs]

    def _exchange_whole(self, tensor: tf.Tensor, placement: Shard | Partial) -> StageNumber:
        """Plan to reduce or gather a tensor; return the first stage that has the whole tensor."""
        planned = self.makers.get(tensor.ref())
        if planned is not None and planned.decision.is_reshape and isinstance(placement, Partial):
            available = [self.plan_way(source, REPLICATE)[1] for source in planned.inputs]
            return max(available).first(on_every_replica=True)
        stage = self._exchange(tensor)
        self.exchanges[tensor.ref()].shard = None
        return stage

    def _exchange(self, tensor: tf.Tensor, shard: Shard | None = None) -> StageNumber:
        """Plan to exchange a tensor, unless it is planned already; return the round's beginning."""
        if self.parent is not None:
            raise NeedsCollectiveError(tensor.name)
        if tensor.ref() not in self.exchanges:
            stage, placement = self.stage_of(tensor).next_round, self.placement(tensor)
            if isinstance(placement, Shard) and len(placement.rows.segments) > 1:
                stage = max(stage, self.count_rows(placement.rows))
            self.exchanges[tensor.ref()] = PlannedExchange(tensor, stage, shard)
        return self.exchanges[tensor.ref()].stage

    # Divided weights

    def _is_wanted_weight(self, tensor: tf.Tensor, form: Form) -> bool:
        """Whether a tensor is a divided weight that is wanted whole."""
        if self.step.weight_bytes is None or self.parent is not None or is_fake(tensor):
            return False
        placement = self.placement(tensor)
        if not isinstance(placement, Shard) or placement.rows.known_parts is None:
            return False
        return isinstance(form, Replicate) and self.shape(tensor).is_fully_defined()

    def _gather_weights(self, weights: Sequence[tf.Tensor], stage: StageNumber) -> StageNumber:
        """Plan to gather weights for a stage, or for the next stage that has room for them.

        A stage lets go of its weights. A later stage that needs a weight, such as a stage of the
        backward pass, gathers the weight again.
        """
        known = max(self.stage_of(tensor).next_round for tensor in weights)
        stage = max(stage, known).first(on_every_replica=True)
        while not self._has_room(weights, self.weights.get(stage.round, {})):
            stage = stage.next
        gathers = self.weights.setdefault(stage.round, {})
        begin = StageNumber(stage.round, on_every_replica=False)
        for tensor in weights:
            gathers[tensor.ref()] = PlannedExchange(tensor, begin, is_weight=True)
        return stage

    def _has_room(
        self, weights: Sequence[tf.Tensor], gathers: Mapping[Ref, PlannedExchange]
    ) -> bool:
        """Whether weights are gathered for a stage already, or fit beside its other weights."""
        added = {tensor.ref(): tensor for tensor in weights}
        together = {ref: gather.tensor for ref, gather in gathers.items()} | added
        total = sum(map(bytes_of, together.values()))
        return len(together) in (len(gathers), len(added)) or total <= (self.step.weight_bytes or 0)

    # Calls and rewritten operations

    def _inline(self, op: tf.Operation, earliest: StageNumber) -> None:
        """Plan the operations of a called function in place of the call."""
        graph = self.step.bodies.graph_of(op, op.get_attr("f").name, op.inputs)
        for inner, outer in zip(graph.inputs, op.inputs, strict=True):
            self.set_alias(inner, outer)
            if inner.dtype == tf.resource:
                handle_data_util.copy_handle_data(self.canonical(outer), inner)
        operations = live_operations(graph, graph.outputs)
        operations = [inner for inner in operations if inner not in self.step.bodies.added]
        self._calls.append(op)
        planned = [inner for inner in operations if inner.type != "Placeholder"]
        self._replace(op, planned, graph.outputs, earliest)
        self._calls.pop()

    def _rewrite(
        self,
        op: tf.Operation,
        make: Callable[[], Sequence[tf.Tensor]],
        earliest: StageNumber,
    ) -> None:
        """Plan the operations that stand for an operation of the step, written into its graph."""
        bodies = self.step.bodies
        if op not in bodies.rewritten:
            before = len(op.graph.get_operations())
            with (
                op.graph.as_default(),
                tf.control_dependencies(list(op.control_inputs)),
                tf.name_scope(f"{op.name}/"),
            ):
                outputs = make()
            operations = op.graph.get_operations()[before:]
            hold_back(operations, op.control_inputs)
            bodies.rewritten[op] = (operations, outputs)
            bodies.added |= dict.fromkeys(operations, op)
        operations, outputs = bodies.rewritten[op]
        self._replace(op, operations, outputs, earliest)

    def _replace(
        self,
        op: tf.Operation,
        operations: Sequence[tf.Operation],
        outputs: Sequence[tf.Tensor],
        earliest: StageNumber,
    ) -> None:
        earliest = self._after_controls(op, earliest)
        for inner in operations:
            self.visit(inner, earliest)
        for output, made in zip(op.outputs, outputs, strict=True):
            self.set_alias(output, made)
        self._inlined[op] = [inner for inner in operations if inner.op_def.is_stateful]
        stages = [self._stage_of_op.get(inner, INPUTS) for inner in operations]
        self._stage_of_op[op] = max([earliest, *stages])

    def origin(self, op: tf.Operation) -> tf.Operation:
        """Return the operation of the traced step that `op` stands for."""
        while op in self.step.bodies.added:
            op = self.step.bodies.added[op]
        return op


def bytes_of(tensor: tf.Tensor) -> int:
    """Return the bytes of a tensor of a known shape; 0 for any other tensor."""
    return (tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def is_fake(tensor: tf.Tensor) -> bool:
    """Whether a tensor is a stand-in, as a branch returns for results that the branch lacks."""
    return handle_source(tensor).op.type == "FakeParam"  # type: ignore[no-any-return]


def _is_one_row(tensor: tf.Tensor, placement: Placement) -> bool:
    """Whether a batch is known to have a single row."""
    if not isinstance(placement, Shard) or tensor.shape.rank is None:
        return False
    return bool(tensor.shape[placement.axis] == 1 and placement.rows.is_batch)


def _is_plain_call(op: tf.Operation) -> bool:
    """Whether an operation is a call, and the function's operations can be planned in its place."""
    if op.type not in FUNCTION_CALLS:
        return False
    # A function that only XLA can compute, such as a convolution in groups on CPUs, stays a call.
    return not (kernel_of(op) or is_compiled(op))


def live_operations(graph: tf.Graph, outputs: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Return the operations that have effects or that the outputs depend on, dependencies first."""
    operations = graph.get_operations()
    live = {tensor.op for tensor in outputs}
    live |= {op for op in operations if op.op_def.is_stateful and op.type not in READS | QUIET}
    stack = list(live)
    while stack:
        for source in _sources(stack.pop()):
            if source not in live:
                live.add(source)
                stack.append(source)
    # The order of creation is sorted already, but for control inputs that were added later.
    done: set[tf.Operation] = set()
    order: list[tf.Operation] = []
    for root in operations:
        if root not in live or root in done:
            continue
        todo = [(root, False)]
        while todo:
            op, is_ready = todo.pop()
            if op in done:
                continue
            if is_ready:
                done.add(op)
                order.append(op)
                continue
            todo.append((op, True))
            todo += [(source, False) for source in _sources(op) if source not in done]
    return order


def _sources(op: tf.Operation) -> list[tf.Operation]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]
