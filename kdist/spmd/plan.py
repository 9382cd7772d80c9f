"""Plan a traced step: the placement of every tensor, and the collectives between its stages.

The step was traced as the program of one device that sees the global batch. The planner walks its
operations once, in order. The rule of an operation's type (`rules/`) says how it is divided. Where
no rule is certain, all rows are gathered and every replica computes the whole operation.

A planned step is a sequence of stages, each known by its time. Those of odd times run on every
replica. Before the stage 2k+1, at the even time 2k, replicas exchange values, and what must not run
on each of them, such as `tf.print`, runs once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from .effects import CALLS, QUIET, READS, effects_of, handle_source
from .functions import Bodies, hold_back, is_compiled, kernel_of
from .lift import PLAIN, lift, lifted_places
from .placements import (
    AS_IS,
    REPLICATE,
    AsIs,
    ListOf,
    Local,
    Opaque,
    OwnRows,
    Partial,
    Placement,
    Replicate,
    Rows,
    Shard,
    rows_of,
)
from .size_reader import read_sizes
from .sizes import AnySize, AxisSize, Size, Space, symbolic

Want = Placement | AsIs | OwnRows | Local
BEFORE = -1  # the time of the step's inputs


class NeedsCollectiveError(Exception):
    """A loop's or condition's body needs values of other replicas."""


class ComputeWholeError(Exception):
    """The step has to be planned again, with these operations computed whole."""

    def __init__(self, operations: Iterable[Any]) -> None:
        super().__init__("compute whole")
        self.operations = set(operations)


@dataclass
class Decision:
    """How an operation is computed.

    Args:
        want: For each input, the placement that it is wanted in.
        out: The placements of the results.
        emit: Called with the stage, the operation and its inputs; returns the results. `None`
            copies the operation.
        alias: Whether the result has the values of the first input in another shape: if that is
            partial, it is reduced in the first input's place, once for all its shapes.
        inputs: The tensors that are wanted, if they are not the operation's inputs.
        needs: Sizes and rows of which `emit` needs the numbers.
        gathers: Whether the operation needs the rows of all replicas by its nature.
        once: Whether it runs once, not on every replica.
        bodies: The plans of a loop's body or of a condition's branches.
    """

    want: Sequence[Want]
    out: Sequence[Placement]
    emit: Callable[..., Sequence[Any]] | None = None
    alias: bool = False
    inputs: Sequence[Any] | None = None
    needs: Iterable[AnySize | Rows] = ()
    gathers: bool = False
    once: bool = False
    bodies: Sequence[Planner] = ()


@dataclass
class Rewrite:
    """Operations that stand for one of the traced step.

    Args:
        make: Writes them into the default graph, and returns the results.
    """

    make: Callable[[], Sequence[Any]]


@dataclass(eq=False)
class Item:
    """A planned operation."""

    op: Any
    decision: Decision
    inputs: list[Any]
    placements: list[Placement]
    time: int
    controls: list[Any] = field(default_factory=list)
    whole: bool = False
    """Whether rows were gathered, or a rule was missing: every replica computes all of it."""
    writes: bool = False
    """Whether it changes variables of which every replica has its own copy or part."""


@dataclass
class Merge:
    """Two inputs of the step that an operation demands to have equally many rows."""

    one: Space
    other: Space
    op: Any
    undo: Callable[[], None]


class Operation:
    """An operation of a traced step, as a rule sees it."""

    def __init__(self, planner: Planner, op: Any) -> None:
        self.planner, self.op = planner, op
        self.type: str = op.type
        self.inputs = [planner.canonical(t) for t in op.inputs]
        self.placements = [planner.placement(t) for t in self.inputs]
        self.outputs = op.outputs

    def attr(self, name: str) -> Any:
        """Return an attribute of the operation."""
        return self.op.get_attr(name)

    def rank(self, index: int) -> int | None:
        """Return the rank of an input, if it is known."""
        rank: int | None = self.inputs[index].shape.rank
        return rank

    def constant(self, index: int) -> Any:
        """Return the value of an input if it is known while tracing."""
        return self.planner.constant(self.inputs[index])

    def sizes(self, index: int) -> Any:
        """Return what is known of an integer input of rank 0 or 1, an array of sizes."""
        return self.planner.sizes(self.inputs[index])

    def dims(self, index: int) -> list[AnySize] | None:
        """Return the sizes of an input's axes over all replicas."""
        return self.planner.dims(self.inputs[index])

    def shard(self, index: int) -> Shard | None:
        """Return the placement of an input if it is divided."""
        placement = self.placements[index]
        return placement if isinstance(placement, Shard) else None

    def is_partial(self, index: int, op: str | None = None) -> bool:
        """Whether an input has to be reduced over the replicas."""
        placement = self.placements[index]
        return isinstance(placement, Partial) and op in (None, placement.op)

    @property
    def any_shard(self) -> bool:
        """Whether any input is divided."""
        return any(isinstance(p, Shard) for p in self.placements)

    def align(self, placement: Placement, want: Shard) -> bool:
        """Return whether rows are divided as wanted, once batches of equal size are merged.

        Call this only where the operation is an error unless both axes have the same size, or one
        is a single row.
        """
        if not isinstance(placement, Shard) or placement.axis != want.axis:
            return False
        return placement.fits(want) or self.planner.merge(placement.rows, want.rows, self.op)


class Planner:
    """Plans a traced graph, or the body of a loop or condition in it.

    Args:
        parent: The planner of the graph that contains the body.
        is_conditional: Whether it is a body that may not run.
        can_check: Whether operations that fail the step can be written: XLA leaves them out.
        whole: Operations that have to be computed whole.
        bodies: The graphs of called functions, the same in each attempt to plan a step.
        in_fixed_order: Whether a stage changes variables only after all of its reads, as several
            replicas share them.
    """

    def __init__(
        self,
        parent: Planner | None = None,
        whole: Iterable[Any] = (),
        *,
        is_conditional: bool = False,
        can_check: bool = True,
        bodies: Bodies | None = None,
        in_fixed_order: bool = False,
    ) -> None:
        self.parent = parent
        self.is_conditional = is_conditional
        self.can_check: bool = can_check and (parent is None or parent.can_check)
        self.whole = set(whole)
        self.in_fixed_order = in_fixed_order
        self._written: dict[int, int] = {}  # variables -> when they were changed last
        self.bodies: Bodies = parent.bodies if parent else bodies or Bodies()
        self.shared: set[int] = parent.shared if parent else set()  # resources that exist once
        self.items: list[Item] = []
        self.item_of: dict[int, Item] = {}
        self.exchanges: dict[int, dict[int, Any]] = {}  # time -> tensor id -> tensor
        self.scattered: dict[int, Shard] = {}  # ids of sums of which a replica gets its rows
        # How variables of a shape are divided.
        self.divisions: dict[tuple[int, ...], Shard] = parent.divisions if parent else {}
        self.counted: dict[int, dict[Space, Any]] = {}  # time -> spaces that a step makes
        self.layouts: list[Rows] = parent.layouts if parent else []  # of several segments
        self.elements: dict[Any, Placement] = parent.elements if parent else {}  # of lists
        self.merges: list[Merge] = parent.merges if parent and not is_conditional else []
        self.reduced_axes: dict[int, Any] = {}
        # Of tensors whose first column names rows of the same replica, or counts the batch's.
        self.places: dict[int, Rows] = {}
        self._placements: dict[int, Placement] = {}
        self._times: dict[int, int] = {}
        self._aliases: dict[int, Any] = {}
        self._op_times: dict[Any, int] = {}
        self._constants: dict[int, Any] = {}
        self._sizes: dict[int, Any] = {}
        self._dims: dict[int, Any] = {}
        self._inside: dict[Any, list[Any]] = {}  # the operations of a call, in its place
        self._copies: dict[Any, list[Any]] = {}  # operations that copy states changed by another
        self._calls: list[Any] = []  # the calls that are being inlined
        self.tensors: dict[int, Any] = {}  # keeps them alive, as ids are keys

    # Tensors

    def set_input(self, tensor: Any, placement: Placement, sizes: Any = None) -> None:
        """Set the placement of an input of the graph."""
        self._set(tensor, placement, BEFORE)
        if sizes is not None:
            self._sizes[id(tensor)] = sizes

    def _set(self, tensor: Any, placement: Placement, time: int) -> None:
        self._placements[id(tensor)] = placement
        self._times[id(tensor)] = time
        self.tensors[id(tensor)] = tensor

    def canonical(self, tensor: Any) -> Any:
        """Return the tensor that an argument or result of a call stands for."""
        while id(tensor) in self._aliases:
            tensor = self._aliases[id(tensor)]
        return tensor

    def placement(self, tensor: Any) -> Placement:
        """Return the placement of a tensor."""
        return self._placements[id(self.canonical(tensor))]

    def time(self, tensor: Any) -> int:
        """Return the stage that makes a tensor."""
        return self._times[id(self.canonical(tensor))]

    def set_alias(self, tensor: Any, of: Any) -> None:
        """Let a tensor stand for another one."""
        self._aliases[id(tensor)] = self.canonical(of)
        self.tensors[id(tensor)] = tensor

    def constant(self, tensor: Any) -> Any:
        """Return the value of a tensor if it is known while tracing."""
        tensor = self.canonical(tensor)
        if id(tensor) not in self._constants:
            value = None
            if tensor.op.type == "Const":
                value = tensor_util.constant_value(tensor)
            elif tensor.op.type != "Placeholder" and tensor.dtype.is_integer:
                sizes = self.sizes(tensor)
                if sizes is not None and all(isinstance(s, int) for s in np.ravel(sizes)):
                    value = sizes.astype(tensor.dtype.as_numpy_dtype)
                elif sizes is None:
                    value = tensor_util.constant_value(tensor)
            self._constants[id(tensor)] = value
        return self._constants[id(tensor)]

    def sizes(self, tensor: Any) -> Any:
        """Return the sizes in an integer tensor of rank 0 or 1, an array; else `None`."""
        tensor = self.canonical(tensor)
        if id(tensor) not in self._sizes:
            self._sizes[id(tensor)] = read_sizes(self, tensor)
        return self._sizes[id(tensor)]

    def set_sizes(self, tensor: Any, sizes: Any) -> None:
        """Set what is known of the values of an integer tensor."""
        self._sizes[id(tensor)] = sizes

    def dims(self, tensor: Any) -> list[AnySize] | None:
        """Return the sizes of a tensor's axes over all replicas; `None` if its rank is unknown."""
        tensor = self.canonical(tensor)
        if id(tensor) not in self._dims:
            self._dims[id(tensor)] = self._read_dims(tensor)
        dims: list[AnySize] | None = self._dims[id(tensor)]
        return dims

    def _read_dims(self, tensor: Any) -> list[AnySize] | None:
        if tensor.shape.rank is None:
            return None
        placement = self._placements.get(id(tensor))
        dims: list[AnySize] = []
        for axis, size in enumerate(tensor.shape.as_list()):
            if isinstance(placement, Shard) and placement.axis == axis:
                dims.append(placement.rows.total)
            else:
                dims.append(symbolic(AxisSize(tensor, axis)) if size is None else int(size))
        return dims

    def set_dims(self, tensor: Any, dims: Sequence[AnySize]) -> None:
        """Set the sizes of a tensor's axes, where they are better known than from its shape."""
        self._dims[id(tensor)] = list(dims)

    # Batches

    def merge(self, a: Rows, b: Rows, op: Any) -> bool:
        """Assume that two inputs of the step have equally many rows, as an operation demands.

        This is checked at the beginning of each step; in a branch or loop, each time that it runs.
        """
        if self.is_conditional and not self.can_check:
            return False
        if len(a.segments) != 1 or len(b.segments) != 1:
            return False
        (one, unit), (other, others_unit) = a.segments[0], b.segments[0]
        one, other = one.root(), other.root()
        if unit != others_unit or one.source is not None or other.source is not None:
            return False
        if not (one.is_batch and other.is_batch):
            return False
        if one.total != other.total and None not in (one.total, other.total):
            return False
        if one.parts != other.parts and None not in (one.parts, other.parts):
            return False
        self.merges.append(Merge(one, other, op, one.merge(other)))
        return True

    @property
    def assumptions(self) -> list[Merge]:
        """The batches that only this body assumes to have equally many rows."""
        return self.merges if self.is_conditional else []

    @contextlib.contextmanager
    def assuming(self) -> Iterator[None]:
        """Let the assumptions of a planned body hold."""
        for merge in self.assumptions:
            merge.undo = merge.one.root().merge(merge.other)
        try:
            yield
        finally:
            self.suspend()

    def suspend(self) -> None:
        """Let the assumptions of this body hold no longer: they are true only inside of it."""
        for merge in reversed(self.assumptions):
            merge.undo()

    def undo_merges(self, since: int) -> None:
        """Take back all merges but the first ones: those of a plan that is given up."""
        while len(self.merges) > since:
            self.merges.pop().undo()

    def rows_of(self, size: AnySize) -> Rows | None:
        """Return how to divide an axis of this size, if it is a multiple of a batch's rows.

        Several batches that were concatenated are divided as they are elsewhere in the step.
        """
        found = rows_of(size)
        if found is None or found.segments[0][1] != 1:
            return next((rows for rows in reversed(self.layouts) if rows.total == size), found)
        return found

    def need_counts(self, size: AnySize | Rows) -> int:
        """Ask for the numbers of rows that a size depends on; return when they are known."""
        time = BEFORE
        total = size.total if isinstance(size, Rows) else size
        for space in total.spaces() if isinstance(total, Size) else ():
            if space.source is not None:
                tensor, _ = space.source
                if self.parent is not None:
                    raise NeedsCollectiveError(space.name)
                at = _next_exchange(self.time(tensor))
                self.counted.setdefault(at, {})[space] = tensor
                time = max(time, at)
        return time

    # Walking

    def run(self, operations: Iterable[Any]) -> None:
        """Plan operations, in an order in which each comes after those that it depends on."""
        for op in operations:
            self.visit(op)

    def visit(self, op: Any, base: int = BEFORE) -> None:
        """Plan an operation; `base` is the earliest stage in which it may run."""
        from .rules import find_rule

        if _is_plain_call(op):
            self._inline(op, base)
            return
        if op.type == "Identity" and op.inputs[0].dtype == tf.resource:
            self.set_alias(op.outputs[0], op.inputs[0])
            return
        if self.parent is None and op.type not in PLAIN:
            divided = [self._is_divided(t) for t in op.inputs]
            if op in self.bodies.rewritten or lifted_places(op, divided):
                self._rewrite(op, lambda: lift(op, divided), base)
                return
        view = Operation(self, op)
        decision = None
        if op not in self.whole:
            found = find_rule(op)
            decision = found(view) if found else None
            if isinstance(decision, Rewrite):
                self._rewrite(op, decision.make, base)
                return
            if decision is not None and any(map(_is_one_row, op.outputs, decision.out)):
                decision = None
        whole = False
        changed: list[Any] = []
        if decision is None:
            once, changed = self.effects(op)
            wants, out = [REPLICATE] * len(view.inputs), [REPLICATE] * len(op.outputs)
            decision = Decision(wants, out, once=once)
            whole = view.any_shard
        inputs = view.inputs
        if decision.inputs is not None:
            inputs = [self.canonical(t) for t in decision.inputs]
        placements = [self.placement(t) for t in inputs]
        time = max([base, *(self._op_times.get(c, BEFORE) for c in op.control_inputs)])
        for tensor, placement, want in zip(inputs, placements, decision.want, strict=True):
            time = max(time, self.demand(tensor, placement, want))
            whole |= is_gathered(placement, want) and not decision.gathers
        for size in decision.needs:
            time = max(time, self.need_counts(size))
        once = decision.once
        time = _round_up(time, even=once)
        writes = self.parent is None and not once and bool(self._effects(op)[1])
        if self.in_fixed_order:
            time = self._after_writes(inputs, time, writes)
        if op.type == "Const":
            time = BEFORE
        item = Item(op, decision, inputs, placements, time, self._controls(op), whole, writes)
        self.items.append(item)
        self._op_times[op] = time
        for output, placement in zip(op.outputs, decision.out, strict=True):
            if id(output) not in self._aliases:
                self._set(output, placement, time)
                self.item_of[id(output)] = item
        if once:
            self.shared.update(id(t) for t in op.outputs if t.dtype.name == "resource")
            self._copy_states(op, changed, time)

    def _after_writes(self, inputs: Sequence[Any], time: int, writes: bool) -> int:
        """Return the stage of an operation: after the one that changes what it reads."""
        handles = [id(t) for t in inputs if t.dtype.name == "resource"]
        if writes:
            self._written.update(dict.fromkeys(handles, time))
            return time
        read = [self._written.get(handle, BEFORE) for handle in handles]
        return time + 2 if time in read else time

    def _effects(self, op: Any) -> tuple[bool, set[int]]:
        if not op.op_def.is_stateful:
            return False, set()
        return effects_of(op, [id(self.canonical(t)) in self.shared for t in op.inputs])

    def effects(self, op: Any) -> tuple[bool, list[Any]]:
        """Return whether an operation must run once, and which replicas' states it changes then."""
        once, changed = self._effects(op)
        # A state is changed by operations without results: what has a counterpart was lifted.
        once = once or bool(changed and (op.type in CALLS or op.outputs))
        if once and self.parent is not None:
            raise NeedsCollectiveError(f"to run once {op.name}")
        handles = [self.canonical(op.inputs[place]) for place in sorted(changed)]
        return once, [handle for handle in handles if id(handle) not in self.shared]

    def _copy_states(self, op: Any, handles: Sequence[Any], time: int) -> None:
        """Give the other replicas the variables that an operation changed on the first one."""
        for handle in handles:
            data = handle_data_util.get_resource_handle_data(handle)
            with handle.graph.as_default():
                dtype = tf.as_dtype(data.shape_and_type[0].dtype)
                value = gen_resource_variable_ops.read_variable_op(handle, dtype)
                assigned = gen_resource_variable_ops.assign_variable_op(handle, value)
            read, write = Decision([AS_IS], [REPLICATE]), Decision([AS_IS, REPLICATE], [])
            item = Item(value.op, read, [handle], [REPLICATE], time, [op])
            self._set(value, REPLICATE, time)
            self.item_of[id(value)] = item
            placements: list[Placement] = [REPLICATE, REPLICATE]
            self._written[id(handle)] = time + 1
            self.items += [
                item,
                Item(assigned, write, [handle, value], placements, time + 1, [op], writes=True),
            ]
            self._copies.setdefault(op, []).append(assigned)
            self._op_times[op] = time + 1

    def demand(self, tensor: Any, placement: Placement, want: Want) -> int:
        """Ask for a tensor as an operation wants it; return from which stage on it is there."""
        time = self.time(tensor)
        tensor = self.canonical(tensor)
        if isinstance(want, Local):
            return max([time, *(self.need_counts(rows) for _, rows in want.rows)])
        if isinstance(placement, Opaque) and want != placement:
            raise ComputeWholeError({placement.origin})
        if isinstance(want, AsIs | Opaque) or is_never_used(tensor):
            return time
        if isinstance(placement, ListOf):
            raise ComputeWholeError({placement.origin})
        shard = want.shard if isinstance(want, OwnRows) else want
        if isinstance(shard, Shard):
            if isinstance(placement, Shard) and placement.fits(shard):
                return time
            time = max(time, self.need_counts(shard.rows))
            if self._may_scatter(tensor, placement, shard):
                return max(time, self._scatter(tensor, shard))
        elif isinstance(want, Partial) and isinstance(placement, Partial | Replicate):
            return time
        if isinstance(placement, Replicate):
            return time
        return max(time, self._plan_exchange(tensor, placement))

    def _plan_exchange(self, tensor: Any, placement: Placement) -> int:
        """Reduce or gather a tensor; return the stage from which on every replica has it."""
        item = self.item_of.get(id(tensor))
        if item is not None and item.decision.alias and isinstance(placement, Partial):
            times = [self.demand(t, self.placement(t), REPLICATE) for t in item.inputs]
            return _round_up(max(times), even=False)
        if self.parent is not None:
            raise NeedsCollectiveError(tensor.name)
        at = _next_exchange(self.time(tensor))
        if isinstance(placement, Shard) and len(placement.rows.segments) > 1:
            at = max(at, self.need_counts(placement.rows))
        self.scattered.pop(id(tensor), None)  # all of it is wanted
        return self._plan_exchange_at(tensor, at)

    def _plan_exchange_at(self, tensor: Any, at: int) -> int:
        """Exchange a tensor, unless it was before; return when."""
        for earlier, tensors in self.exchanges.items():
            if id(tensor) in tensors:
                return earlier
        self.exchanges.setdefault(at, {})[id(tensor)] = tensor
        return at

    def division(self, tensor: Any) -> Shard | None:
        """Return how variables of a tensor's shape are divided; `None` if they are not."""
        shape = tensor.shape
        return self.divisions.get(tuple(shape)) if shape.is_fully_defined() else None

    def _may_scatter(self, tensor: Any, placement: Placement, shard: Shard) -> bool:
        """Whether a sum can be made in parts: of each, the replica that wants these rows."""
        division = self.division(tensor)
        return placement == Partial() and division is not None and division.fits(shard)

    def _scatter(self, tensor: Any, shard: Shard) -> int:
        """Sum a tensor so that each replica gets its rows; return from when it has them."""
        if self.parent is not None:
            raise NeedsCollectiveError(tensor.name)
        if not any(id(tensor) in tensors for tensors in self.exchanges.values()):
            self.scattered[id(tensor)] = shard
        return self._plan_exchange_at(tensor, _next_exchange(self.time(tensor)))

    def _inline(self, op: Any, base: int) -> None:
        graph = self.bodies.of(op, op.get_attr("f").name, op.inputs)
        base = max([base, *(self._op_times.get(c, BEFORE) for c in op.control_inputs)])
        for inner, outer in zip(graph.inputs, op.inputs, strict=True):
            self.set_alias(inner, outer)
            if inner.dtype == tf.resource:
                handle_data_util.copy_handle_data(self.canonical(outer), inner)
        inner_ops = live_operations(graph, graph.outputs)
        inner_ops = [one for one in inner_ops if one not in self.bodies.added]
        self._calls.append(op)
        for one in inner_ops:
            if one.type != "Placeholder":
                self.visit(one, base)
        self._calls.pop()
        self._inside[op] = [one for one in inner_ops if one.op_def.is_stateful]
        for output, inner in zip(op.outputs, graph.outputs, strict=True):
            self.set_alias(output, inner)
        self._op_times[op] = max([base, *(self._op_times.get(one, BEFORE) for one in inner_ops)])

    def origin(self, op: Any) -> Any:
        """Return the operation of the traced step that another one stands for."""
        while op in self.bodies.added:
            op = self.bodies.added[op]
        return op

    def _is_divided(self, tensor: Any) -> bool:
        """Whether a tensor is the handle of a divided variable."""
        if tensor.dtype != tf.resource:
            return False
        return isinstance(self._placements.get(id(self.canonical(tensor))), Shard)

    def _rewrite(self, op: Any, make: Callable[[], Sequence[Any]], base: int) -> None:
        """Plan the operations that stand for one of the traced step, written into its graph."""
        if op not in self.bodies.rewritten:
            before = len(op.graph.get_operations())
            with (
                op.graph.as_default(),
                tf.control_dependencies(list(op.control_inputs)),
                tf.name_scope(f"{op.name}/"),
            ):
                outputs = make()
            operations = op.graph.get_operations()[before:]
            hold_back(operations, op.control_inputs)
            self.bodies.rewritten[op] = (operations, outputs)
            self.bodies.added |= dict.fromkeys(operations, op)
        operations, outputs = self.bodies.rewritten[op]
        base = max([base, *(self._op_times.get(c, BEFORE) for c in op.control_inputs)])
        for one in operations:
            self.visit(one, base)
        for output, made in zip(op.outputs, outputs, strict=True):
            self.set_alias(output, made)
        self._inside[op] = [one for one in operations if one.op_def.is_stateful]
        self._op_times[op] = max([base, *(self._op_times.get(one, BEFORE) for one in operations)])

    def _controls(self, op: Any) -> list[Any]:
        """Return the operations that have to run before one."""
        found = list(op.control_inputs)
        if op.op_def.is_stateful:
            for call in self._calls:
                found += call.control_inputs
        result: list[Any] = []
        while found:
            one = found.pop()
            if one in self._inside:
                found += self._inside[one]
            else:
                result += [one, *self._copies.get(one, ())]
        return result


def is_never_used(tensor: Any) -> bool:
    """Whether a branch returns a tensor in place of what only the other one makes."""
    return handle_source(tensor).op.type == "FakeParam"  # type: ignore[no-any-return]


# Stages with an odd time run on every replica, the others once; `BEFORE` is what is there already.


def _round_up(time: int, *, even: bool) -> int:
    """Return the first stage from a time on that runs once, or on every replica."""
    time = max(time, 0)
    return time if (time % 2 == 0) == even else time + 1


def _is_one_row(tensor: Any, placement: Placement) -> bool:
    """Whether a batch is known to have a single row: every replica has that, as of an input."""
    if not isinstance(placement, Shard) or tensor.shape.rank is None:
        return False
    return bool(tensor.shape[placement.axis] == 1 and placement.rows.is_batch)


def _next_exchange(time: int) -> int:
    """Return when a value can be exchanged: before the next stage that runs once."""
    return time + 1 if time % 2 else time + 2 if time >= 0 else 0


def is_gathered(placement: Placement, want: Want) -> bool:
    """Whether an input is wanted otherwise than it is divided, so that its rows are gathered."""
    if not isinstance(placement, Shard):
        return False
    if isinstance(want, AsIs | Local):
        return False
    shard = want.shard if isinstance(want, OwnRows) else want
    return not placement.fits(shard)


def _is_plain_call(op: Any) -> bool:
    if op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return False
    # What only XLA can compute, as grouped convolutions on CPUs, stays a call.
    return not (kernel_of(op) or is_compiled(op))


def live_operations(graph: Any, outputs: Sequence[Any]) -> list[Any]:
    """Return the operations that the outputs depend on, and those with effects, sorted."""
    operations = graph.get_operations()
    live = {t.op for t in outputs}
    live |= {op for op in operations if op.op_def.is_stateful and op.type not in READS | QUIET}
    stack = list(live)
    while stack:
        op = stack.pop()
        for one in (*(t.op for t in op.inputs), *op.control_inputs):
            if one not in live:
                live.add(one)
                stack.append(one)
    # The order of creation is sorted, except for control inputs that were added later.
    done: set[Any] = set()
    order: list[Any] = []
    for root in operations:
        if root not in live or root in done:
            continue
        todo = [(root, False)]
        while todo:
            op, ready = todo.pop()
            if op in done:
                continue
            if ready:
                done.add(op)
                order.append(op)
                continue
            todo.append((op, True))
            todo += [
                (one, False)
                for one in (*(t.op for t in op.inputs), *op.control_inputs)
                if one not in done
            ]
    return order
