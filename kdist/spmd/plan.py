"""Plan a traced step: the placement and stage of every tensor, and the exchanges between stages.

The step was traced as the program of one device that sees the global batch. Its operations are
planned once, in order:

1. The rule of the operation's type decides how the operation is divided (`_decide_division`).
   Without a certain rule, every replica computes the whole operation (`_plan_whole`).
2. Each input is converted from its placement to the form that the rule wants (`plan_conversion`,
   `redistribute.py`). A conversion that needs values of other replicas plans an exchange.
3. The operation runs in the first stage that has all inputs in their forms (`_plan_decision`).
   `tensor_facts.StageNumber` has the order of stages.

A call of a function is replaced by the function's operations (`_inline_call`). A loop, condition or
function for XLA has a plan of its own, without exchanges: `rules/control_flow.py`.
`stage.py` and `program.py` write a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from .effects import handle_source
from .functionalize import functionalize, functionalized_inputs, read_variable
from .functions import hold_back, is_compiled, kernel_name
from .op_types import CALLS, FUNCTION_CALLS, PLAIN, READS, REMOVABLE
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
    Conversion,
    Keep,
    SliceRows,
    TakeRowsOfSum,
    TakeWeight,
    WriteSizes,
    choose_conversion,
    gathers_rows,
    settle_conversion,
)
from .tensor_facts import INPUTS, NeedsCollectiveError, Ref, StageNumber, StepFacts, TensorFacts


@dataclass(eq=False)
class PlannedOperation:
    """An operation with its place in the plan.

    Attributes:
        inputs: The canonical tensors of its inputs (`TensorFacts.resolve_alias`).
        conversions: The conversions from the placements to the wanted forms.
        controls: Operations that have to run before.
        is_undivided: Whether the operation has no rule, or its rule is not certain.
        changes_variables: Whether the operation changes a variable with a copy or a part on every
            replica.
    """

    op: tf.Operation
    decision: Decision
    inputs: list[tf.Tensor]
    placements: Sequence[Placement]
    conversions: Sequence[Conversion]
    stage: StageNumber
    controls: list[tf.Operation] = field(default_factory=list)
    is_undivided: bool = False
    changes_variables: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every replica computes all rows, although the operation does not need all rows.

        `Decision.needs_all_rows` marks operations that need all rows by their nature.
        """
        pairs = zip(self.placements, self.conversions, strict=True)
        gathers = any(gathers_rows(placement, conversion) for placement, conversion in pairs)
        has_rows = any(isinstance(placement, Shard) for placement in self.placements)
        return (gathers and not self.decision.needs_all_rows) or (self.is_undivided and has_rows)


@dataclass(eq=False)
class PlannedExchange:
    """The exchange of a tensor: a single exchange for all operations that read the result.

    Attributes:
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

    The arguments are those of `TensorFacts`, and the operations that have to be computed whole.

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
            self.plan_operation(op)

    def plan_operation(self, op: tf.Operation, earliest: StageNumber = INPUTS) -> None:
        """Plan an operation for the stage `earliest` or a later stage."""
        # A function that XLA has to compile, such as a convolution in groups on CPUs, stays a call.
        if op.type in FUNCTION_CALLS and not (kernel_name(op) or is_compiled(op)):
            self._inline_call(op, earliest)
        elif op.type == "Identity" and op.inputs[0].dtype == tf.resource:
            self.set_alias(op.outputs[0], op.inputs[0])
        elif (write := self._find_rewrite(op)) is not None:
            self._plan_rewrite(op, write, earliest)
        else:
            operation = Operation(self, op)
            decision = self._decide_division(operation)
            if isinstance(decision, Rewrite):
                self._plan_rewrite(op, decision.write, earliest)
            elif decision is None:
                self._plan_whole(operation, earliest)
            else:
                self._plan_decision(operation, decision, earliest)

    def _find_rewrite(self, op: tf.Operation) -> Callable[[], Sequence[tf.Tensor]] | None:
        """Return a function that writes an operation without its variables; `None` to keep them.

        An operation cannot keep variables that its body changes, or divided variables. Operations
        inside a body need no rewriting: the rewriting of the loop, condition or call has replaced
        the variables in its body.
        """
        if self.parent is not None or op.type in PLAIN:
            return None
        divided = [self.is_divided(tensor) for tensor in op.inputs]
        if op in self.step.bodies.rewritten or functionalized_inputs(op, divided):
            return lambda: functionalize(op, divided)
        return None

    def _decide_division(self, operation: Operation) -> Decision | Rewrite | None:
        """Return how an operation is divided; `None` if every replica computes all of it."""
        rule = None if operation.op in self.whole else find_rule(operation.op)
        decision = rule(operation) if rule else None
        if not isinstance(decision, Decision):
            return decision
        # A batch that is known to have a single row is not divided: every replica has that row, as
        # with an input of a single row (`partition._set_inputs`).
        has_one_row = any(map(_has_one_row, operation.outputs, decision.output_placements))
        return None if has_one_row else decision

    def _plan_whole(self, operation: Operation, earliest: StageNumber) -> None:
        """Plan a whole operation: on every replica, or on the first replica if it must run once."""
        op = operation.op
        lists = {p.origin for p in operation.placements if isinstance(p, ListOf | Opaque)}
        if lists:  # The replicas' lists cannot be put together: all are computed whole, too.
            raise ComputeWholeError(lists)
        runs_once, changed = self.find_effects(op)
        forms, results = [REPLICATE] * len(operation.inputs), [REPLICATE] * len(op.outputs)
        decision = Decision(forms, results, on_one_replica=runs_once)
        planned = self._plan_decision(operation, decision, earliest)
        planned.is_undivided = True
        if runs_once:
            self._copy_states(op, changed, planned.stage)

    def _plan_decision(
        self, operation: Operation, decision: Decision, earliest: StageNumber
    ) -> PlannedOperation:
        """Plan an operation's conversions of inputs, and the first stage that has all inputs."""
        op, inputs, placements = operation.op, operation.inputs, operation.placements
        runs_once = decision.on_one_replica
        # Below, `stage` only grows: it follows the operations that have to run before, the inputs
        # in their forms and the counts of rows, is of the right kind, and has room for its weights.
        stage = self._find_first_stage(op, earliest)
        conversions: list[Conversion] = []
        weights: dict[int, tf.Tensor] = {}
        for index, (tensor, form) in enumerate(zip(inputs, decision.input_forms, strict=True)):
            if index in operation.weights and isinstance(form, LocalValue):
                form = REPLICATE
            if not runs_once and self._is_wanted_weight(tensor, form):
                weights[index] = tensor
                conversions.append(KEEP)  # `TakeWeight` below, once the stage is known.
                continue
            conversion, available = self.plan_conversion(tensor, form)
            conversions.append(conversion)
            stage = max(stage, available)
        for size in decision.needs:
            stage = max(stage, self.count_rows(size))
        changes = self.parent is None and not runs_once and bool(self.effects_of(op)[1])
        stage = stage.first(on_every_replica=not runs_once)
        if weights:
            stage = self._gather_weights([*weights.values()], stage)
            for index in weights:
                conversions[index] = TakeWeight(stage.round)
        if self.step.in_fixed_order and self.parent is None:
            stage = self._wait_for_changes(inputs, stage, changes)
        if op.type == "Const":
            stage = INPUTS
        controls = self._find_controls(op)
        planned = PlannedOperation(op, decision, inputs, placements, conversions, stage, controls)
        planned.changes_variables = changes
        self._add_planned(planned)
        if runs_once:
            self.step.shared |= {t.ref() for t in op.outputs if t.dtype == tf.resource}
        return planned

    def _add_planned(self, planned: PlannedOperation) -> None:
        self.operations.append(planned)
        self._stage_of_op[planned.op] = planned.stage
        placements = planned.decision.output_placements
        for output, placement in zip(planned.op.outputs, placements, strict=True):
            if output.ref() not in self._aliases:
                self.set_tensor(output, placement, planned.stage)
                self.makers[output.ref()] = planned

    # Order and effects

    def _find_first_stage(self, op: tf.Operation, earliest: StageNumber) -> StageNumber:
        return max([earliest, *(self._stage_of_op.get(c, INPUTS) for c in op.control_inputs)])

    def _wait_for_changes(
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
        runs_once, changed = self.effects_of(op)
        # An operation that changes a variable, has no results and is no call can run on every
        # replica. A call, or an operation with results, changes the variable on the first replica,
        # and the new value is copied to the other replicas.
        runs_once = runs_once or bool(changed and (op.type in CALLS or op.outputs))
        if runs_once and self.parent is not None:
            raise NeedsCollectiveError(f"{op.name} has to run once, which a body cannot do")
        handles = [self.resolve_alias(op.inputs[index]) for index in sorted(changed)]
        return runs_once, [handle for handle in handles if not self.is_shared(handle)]

    def _copy_states(
        self, op: tf.Operation, handles: Sequence[tf.Tensor], stage: StageNumber
    ) -> None:
        """Copy the variables that an operation changed on the first replica to all replicas."""
        # The value is read in the stage of the operation, and assigned in the next stage that runs
        # on every replica. Later operations wait for the assignments (`_stage_of_op`, `_copies`).
        read = Decision([LOCAL], [REPLICATE], on_one_replica=True)
        change = Decision([LOCAL, LOCAL], [])
        for handle in handles:
            with handle.graph.as_default():
                value = read_variable(handle, handle)
                assigned = gen_resource_variable_ops.assign_variable_op(handle, value)
            for made, decision in ((value.op, read), (assigned, change)):
                planned = self._plan_decision(Operation(self, made), decision, stage)
                planned.controls = [op]
            self._copies.setdefault(op, []).append(assigned)
            self._stage_of_op[op] = planned.stage

    def _find_controls(self, op: tf.Operation) -> list[tf.Operation]:
        """Return the operations that have to run before `op`."""
        waiting = list(op.control_inputs)
        if op.op_def.is_stateful:  # An operation of an inlined call waits as the call does.
            for call in self._calls:
                waiting += call.control_inputs
        controls: list[tf.Operation] = []
        while waiting:
            control = waiting.pop()
            if control in self._inlined:
                waiting += self._inlined[control]
            else:
                controls += [control, *self._copies.get(control, ())]
        return controls

    # Redistribution

    def plan_conversion(self, tensor: tf.Tensor, form: Form) -> tuple[Conversion, StageNumber]:
        """Plan a tensor's conversion to a form; return it, and its first possible stage."""
        available, tensor = self.stage_of(tensor), self.resolve_alias(tensor)
        placement = self.placement_of(tensor)
        # The order of the cases: forms that any placement has; opaque values and lists, whose form
        # is fixed; replicated tensors; conversions that need an exchange.
        if is_fake(tensor) and not isinstance(form, LocalSizes):  # No replica reads the tensor.
            return KEEP, available
        conversion = choose_conversion(form, placement, self.variable_shard(tensor))
        if isinstance(conversion, WriteSizes):
            counted = [self.count_rows(rows) for _, rows in conversion.rows]
            return conversion, max([available, *counted])
        if isinstance(placement, Opaque) and form != placement:
            raise ComputeWholeError({placement.origin})
        if isinstance(conversion, Keep):
            return KEEP, available
        if isinstance(placement, ListOf):
            raise ComputeWholeError({placement.origin})
        if isinstance(conversion, SliceRows | TakeRowsOfSum):
            available = max(available, self.count_rows(conversion.shard.rows))
        if isinstance(conversion, TakeRowsOfSum):
            return conversion, max(available, self._plan_exchange(tensor, conversion.shard))
        if isinstance(placement, Replicate):
            return conversion, available
        if isinstance(placement, Shard | Partial):
            return conversion, max(available, self._plan_whole_exchange(tensor))
        raise TypeError(f"{tensor.name} has the placement {placement}, which cannot be exchanged")

    def settle_conversions(self) -> None:
        """Keep inputs that are divided as wanted, now that all batches are merged.

        An exchange that was planned only for a kept input is not written.
        """
        for planned in self.operations:
            pairs = zip(planned.placements, planned.conversions, strict=True)
            planned.conversions = [
                settle_conversion(placement, conversion) for placement, conversion in pairs
            ]

    def delay_updates(self) -> None:
        """Move updates from sums that no other operation needs, such as gradients, to a last stage.

        The first stage that has a gradient's sum is often a stage of the backward pass, which would
        wait for this sum. With the updates in a last stage, a stage waits only for sums that it
        needs to go on, and gradients are summed in large buckets meanwhile. From then on, an
        operation's stage may be later than the first stage that has all its inputs.
        """
        if self.step.in_fixed_order:  # `_wait_for_changes` has the order of reads and changes.
            return
        planned_at = {planned.op: planned for planned in self.operations}
        sources: dict[PlannedOperation, set[PlannedOperation]] = {}
        for planned in self.operations:
            found = {self.makers.get(tensor.ref()) for tensor in planned.inputs}
            found |= {planned_at.get(control) for control in planned.controls}
            sources[planned] = {source for source in found if source is not None}
        sums = {planned: self._sums_of(planned) for planned in self.operations}
        exchanged = {self.makers.get(ref) for ref in self.exchanges}
        waiting = [
            planned
            for planned in self.operations
            if planned in exchanged or not _may_be_delayed(planned)
        ]
        needed = set(waiting)  # Operations that stay in their stages.
        while waiting:
            added = sources[waiting.pop()] - needed
            needed |= added
            waiting += added
        early = {ref for planned in needed for ref in sums[planned]}
        delayed: dict[PlannedOperation, None] = {}
        for planned in self.operations:
            reads_late_sum = not early.issuperset(sums[planned])
            follows = any(source in delayed for source in sources[planned])
            if planned not in needed and (reads_late_sum or follows):
                delayed[planned] = None
        last = max((planned.stage for planned in delayed), default=INPUTS)
        for planned in delayed:
            planned.stage = last
            for output in planned.op.outputs:
                if self.makers.get(output.ref()) is planned:
                    self.set_tensor(output, self.placement_of(output), last)

    def _sums_of(self, planned: PlannedOperation) -> list[Ref]:
        """Return the exchanged sums that an operation reads."""
        found: list[Ref] = []
        inputs = zip(planned.inputs, planned.placements, planned.conversions, strict=True)
        waiting = [
            tensor
            for tensor, placement, conversion in inputs
            if isinstance(placement, Partial) and not isinstance(conversion, Keep)
        ]
        while waiting:
            tensor = waiting.pop()
            maker = self.makers.get(tensor.ref())
            if tensor.ref() in self.exchanges:
                found.append(tensor.ref())
            elif maker is not None and maker.decision.reduces_input:  # see `_plan_whole_exchange`
                waiting += maker.inputs
        return found

    def _plan_whole_exchange(self, tensor: tf.Tensor) -> StageNumber:
        """Plan to reduce or gather a tensor; return the first stage that has the whole tensor."""
        planned = self.makers.get(tensor.ref())
        if planned is not None and planned.decision.reduces_input:
            available = [self.plan_conversion(source, REPLICATE)[1] for source in planned.inputs]
            return max(available).first(on_every_replica=True)
        stage = self._plan_exchange(tensor)
        self.exchanges[tensor.ref()].shard = None
        return stage

    def _plan_exchange(self, tensor: tf.Tensor, shard: Shard | None = None) -> StageNumber:
        """Plan to exchange a tensor, unless it is planned already; return the round's beginning."""
        if self.parent is not None:
            raise NeedsCollectiveError(tensor.name)
        if tensor.ref() not in self.exchanges:
            stage, placement = self.stage_of(tensor).next_round, self.placement_of(tensor)
            if isinstance(placement, Shard) and len(placement.rows.segments) > 1:
                stage = max(stage, self.count_rows(placement.rows))
            self.exchanges[tensor.ref()] = PlannedExchange(tensor, stage, shard)
        return self.exchanges[tensor.ref()].stage

    # Divided weights

    def _is_wanted_weight(self, tensor: tf.Tensor, form: Form) -> bool:
        """Whether a tensor is a divided weight that is wanted whole."""
        if self.step.weight_bytes is None or self.parent is not None or is_fake(tensor):
            return False
        placement = self.placement_of(tensor)
        if not isinstance(placement, Shard) or placement.rows.known_parts is None:
            return False
        return isinstance(form, Replicate) and self.shape_of(tensor).is_fully_defined()

    def _gather_weights(self, weights: Sequence[tf.Tensor], stage: StageNumber) -> StageNumber:
        """Plan to gather weights for a stage, or for the next stage that has room for them.

        A stage frees its weights. A later stage that needs a weight, such as a stage of the
        backward pass, gathers the weight again.
        """
        available = max(self.stage_of(tensor).next_round for tensor in weights)
        stage = max(stage, available).first(on_every_replica=True)
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
        """Whether a stage has the weights already, room for them, or no further weights."""
        added = {tensor.ref(): tensor for tensor in weights}
        together = {ref: gather.tensor for ref, gather in gathers.items()} | added
        total = sum(map(bytes_of, together.values()))
        return len(together) in (len(gathers), len(added)) or total <= (self.step.weight_bytes or 0)

    # Calls and rewritten operations

    def _inline_call(self, op: tf.Operation, earliest: StageNumber) -> None:
        """Plan the operations of a called function in place of the call."""
        graph = self.step.bodies.graph_of(op, op.get_attr("f").name, op.inputs)
        for inner, outer in zip(graph.inputs, op.inputs, strict=True):
            self.set_alias(inner, outer)
            if inner.dtype == tf.resource:
                handle_data_util.copy_handle_data(self.resolve_alias(outer), inner)
        operations = [
            inner
            for inner in live_operations(graph, graph.outputs)
            if inner.type != "Placeholder" and inner not in self.step.bodies.added
        ]
        self._calls.append(op)
        self._plan_replacement(op, operations, graph.outputs, earliest)
        self._calls.pop()

    def _plan_rewrite(
        self,
        op: tf.Operation,
        write: Callable[[], Sequence[tf.Tensor]],
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
                outputs = write()
            operations = op.graph.get_operations()[before:]
            hold_back(operations, op.control_inputs)
            bodies.rewritten[op] = (operations, outputs)
            bodies.added |= dict.fromkeys(operations, op)
        operations, outputs = bodies.rewritten[op]
        self._plan_replacement(op, operations, outputs, earliest)

    def _plan_replacement(
        self,
        op: tf.Operation,
        operations: Sequence[tf.Operation],
        outputs: Sequence[tf.Tensor],
        earliest: StageNumber,
    ) -> None:
        earliest = self._find_first_stage(op, earliest)
        for inner in operations:
            self.plan_operation(inner, earliest)
        for output, replacement in zip(op.outputs, outputs, strict=True):
            self.set_alias(output, replacement)
        self._inlined[op] = [inner for inner in operations if inner.op_def.is_stateful]
        stages = [self._stage_of_op.get(inner, INPUTS) for inner in operations]
        self._stage_of_op[op] = max([earliest, *stages])

    def find_origin(self, op: tf.Operation) -> tf.Operation:
        """Return the operation of the traced step that `op` stands for."""
        while op in self.step.bodies.added:
            op = self.step.bodies.added[op]
        return op


def bytes_of(tensor: tf.Tensor) -> int:
    """Return the bytes of a tensor of a known shape; 0 for any other tensor."""
    return (tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def is_fake(tensor: tf.Tensor) -> bool:
    """Whether a tensor is a stand-in, which a branch returns for a result that it lacks."""
    return handle_source(tensor).op.type == "FakeParam"  # type: ignore[no-any-return]


def _may_be_delayed(planned: PlannedOperation) -> bool:
    """Whether a later stage can hold an operation: every replica computes the same from sums.

    Operations with rows stay: other tensors may have sizes in common with their results.
    """
    is_after_exchange = planned.stage.on_every_replica and planned.stage.round > 0
    takes_weight = any(isinstance(conversion, TakeWeight) for conversion in planned.conversions)
    results = zip(planned.op.outputs, planned.decision.output_placements, strict=True)
    return (
        is_after_exchange
        and not takes_weight
        and all(
            isinstance(placement, Replicate)
            and output.shape.is_fully_defined()
            and output.dtype not in (tf.resource, tf.variant)
            for output, placement in results
        )
    )


def _has_one_row(tensor: tf.Tensor, placement: Placement) -> bool:
    """Whether a batch is known to have a single row."""
    is_batch = isinstance(placement, Shard) and placement.rows.is_batch
    return is_batch and is_single_row(tensor, placement.axis)  # type: ignore[attr-defined]


def is_single_row(tensor: tf.Tensor, axis: int = 0) -> bool:
    """Whether a tensor is known to have a single row along an axis."""
    return bool(tensor.shape.rank is not None and tensor.shape[axis] == 1)


def live_operations(graph: tf.Graph, outputs: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Return the operations that have effects or that the outputs depend on, dependencies first."""
    operations = graph.get_operations()
    live = {tensor.op for tensor in outputs}
    live |= {op for op in operations if op.op_def.is_stateful and op.type not in READS | REMOVABLE}
    stack = list(live)
    while stack:
        for source in _dependencies_of(stack.pop()):
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
            todo += [(source, False) for source in _dependencies_of(op) if source not in done]
    return order


def _dependencies_of(op: tf.Operation) -> list[tf.Operation]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]
