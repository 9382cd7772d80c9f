"""Facts about the tensors of a traced graph: placements, stages, sizes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from .effects import effects_of
from .functions import Bodies
from .placements import Placement, Shard
from .rows import Rows, rows_of
from .size_reader import read_sizes
from .sizes import AnySize, AxisSize, BatchAxis, as_size, batch_axes_in, expected_number

Ref = Any
"""Key of a tensor in a dictionary, as `tf.Tensor.ref` returns it."""


class StageNumber(NamedTuple):
    """Place of a stage in the order of a step.

    A step is a sequence of rounds. In each round, first tensors of earlier stages are exchanged.
    Then a stage runs once, with the operations that must not run on every replica, such as
    `tf.print`. Then a stage runs on every replica:

        inputs | exchange, once, every replica | exchange, once, every replica | …
                 round 0                         round 1

    A sum over replicas may be exchanged later than in its round, just before a stage that reads the
    sum (`Program._call_stage`): so there are few collectives with many bytes each. The step's
    inputs have round -1.
    """

    round: int
    on_every_replica: bool

    def first(self, *, on_every_replica: bool) -> StageNumber:
        """Return this stage if it is of the kind, or the next stage of the kind."""
        is_behind = self.on_every_replica and not on_every_replica
        return StageNumber(max(self.round + is_behind, 0), on_every_replica)

    @property
    def next(self) -> StageNumber:
        """The next stage of the same kind."""
        return self._replace(round=self.round + 1)

    @property
    def next_round(self) -> StageNumber:
        """The beginning of the next round: a tensor of this stage can be exchanged there."""
        return StageNumber(self.round + 1, on_every_replica=False)

    def __str__(self) -> str:
        return f"{self.round}{'' if self.on_every_replica else ' on one replica'}"


INPUTS = StageNumber(-1, on_every_replica=True)
"""Stage of the step's inputs and constants."""


class NeedsCollectiveError(Exception):
    """The body of a loop or condition needs values of other replicas."""


@dataclass
class Assumption:
    """Two inputs of the step have equally many rows, as an operation needs them."""

    batch_axis: BatchAxis
    other: BatchAxis
    op: tf.Operation
    undo: Callable[[], None]


@dataclass
class StepFacts:
    """Facts that the plans of a step and of the bodies in it share.

    Attributes:
        bodies: The graphs of called functions, the same in each attempt to plan the step.
        in_fixed_order: Whether a stage changes variables only after all of its reads, as several
            shards of a batch share the variables.
        shared: Handles of states that exist once, not on every replica.
        variable_shards: The placements of divided variables, by their shapes.
        layouts: Divisions of several segments that the step has made.
        list_elements: For each operation that makes a list, the placement of the list's elements.
        weight_bytes: Most bytes of divided weights gathered for a stage; `None` if weights are not
            divided.
        batch_rows: The expected number of rows of a batch, where shapes do not say the number; for
            costs only. `None` without an expectation.
    """

    bodies: Bodies = field(default_factory=Bodies)
    in_fixed_order: bool = False
    shared: set[Ref] = field(default_factory=set)
    variable_shards: dict[tuple[int, ...], Shard] = field(default_factory=dict)
    layouts: list[Rows] = field(default_factory=list)
    list_elements: dict[tf.Operation, Placement] = field(default_factory=dict)
    weight_bytes: int | None = None
    batch_rows: int | None = None


class TensorFacts:
    """Facts of the tensors of a traced graph, or of the body of a loop or condition in it.

    `parent` has the facts of the graph that contains the body, `step` the facts of the whole step.
    `is_conditional` is whether the graph is a body that may not run, `can_check` whether the graph
    can have checks, which fail the step: XLA leaves out checks.
    """

    def __init__(
        self,
        parent: TensorFacts | None = None,
        step: StepFacts | None = None,
        *,
        is_conditional: bool = False,
        can_check: bool = True,
    ) -> None:
        self.parent = parent
        self.step: StepFacts = parent.step if parent else step or StepFacts()
        self.is_conditional = is_conditional
        self.can_check: bool = can_check and (parent is None or parent.can_check)
        self.inputs: list[tf.Tensor] = []
        # For rows that the step makes, the stage that knows their numbers.
        self.counted: dict[BatchAxis, StageNumber] = {}
        self.assumed: list[Assumption] = parent.assumed if parent and not is_conditional else []
        self.reduced_axes: dict[Ref, Any] = {}
        self._named_rows: dict[Ref, Rows] = {}
        self._placements: dict[Ref, Placement] = {}
        self._stages: dict[Ref, StageNumber] = {}
        self._aliases: dict[Ref, tf.Tensor] = {}
        self._constants: dict[Ref, Any] = {}
        self._sizes: dict[Ref, Any] = {}
        self._dims: dict[Ref, list[AnySize] | None] = {}

    # Placements

    def set_input(self, tensor: tf.Tensor, placement: Placement, sizes: Any = None) -> None:
        """Set the placement of an input of the graph."""
        self.inputs.append(tensor)
        self.set_tensor(tensor, placement, INPUTS)
        if sizes is not None:
            self.set_sizes(tensor, sizes)

    def set_tensor(self, tensor: tf.Tensor, placement: Placement, stage: StageNumber) -> None:
        """Set the placement of a tensor, and the stage that makes it."""
        self._placements[tensor.ref()] = placement
        self._stages[tensor.ref()] = stage

    def set_alias(self, tensor: tf.Tensor, of: tf.Tensor) -> None:
        """Let `tensor` stand for the tensor `of`."""
        self._aliases[tensor.ref()] = self.resolve_alias(of)

    def resolve_alias(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the tensor that an argument or result of a call stands for."""
        while (source := self._aliases.get(tensor.ref())) is not None:
            tensor = source
        return tensor

    def has_tensor(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor belongs to the graph that is planned."""
        return self.resolve_alias(tensor).ref() in self._placements

    def placement_of(self, tensor: tf.Tensor) -> Placement:
        return self._placements[self.resolve_alias(tensor).ref()]

    def stage_of(self, tensor: tf.Tensor) -> StageNumber:
        return self._stages[self.resolve_alias(tensor).ref()]

    def is_divided(self, handle: tf.Tensor) -> bool:
        """Whether a tensor is the handle of a divided variable."""
        if handle.dtype != tf.resource:
            return False
        return isinstance(self._placements.get(self.resolve_alias(handle).ref()), Shard)

    def variable_shard(self, tensor: tf.Tensor) -> Shard | None:
        """Return the placement of divided variables of a tensor's shape, if there are any."""
        shape = self.shape_of(tensor)
        return self.step.variable_shards.get(tuple(shape)) if shape.is_fully_defined() else None

    def is_shared(self, handle: tf.Tensor) -> bool:
        """Whether a handle refers to a state that exists once, not on every replica."""
        return self.resolve_alias(handle).ref() in self.step.shared

    def effects_of(self, op: tf.Operation) -> tuple[bool, set[int]]:
        """Return whether an operation must run once, and the indices of the states it changes."""
        if not op.op_def.is_stateful:
            return False, set()
        return effects_of(op, [self.is_shared(tensor) for tensor in op.inputs])

    # Values and sizes

    def constant_of(self, tensor: tf.Tensor) -> Any:
        """Return the value of a tensor if it is known while tracing."""
        return self._read_once(self._constants, tensor, self._read_constant)

    def _read_once(
        self, known: dict[Ref, Any], tensor: tf.Tensor, read: Callable[[tf.Tensor], Any]
    ) -> Any:
        tensor = self.resolve_alias(tensor)
        key = tensor.ref()
        if key not in known:
            known[key] = read(tensor)
        return known[key]

    def _read_constant(self, tensor: tf.Tensor) -> Any:
        if tensor.op.type == "Const":
            return tensor_util.constant_value(tensor)
        if tensor.op.type == "Placeholder" or not tensor.dtype.is_integer:
            return None
        sizes = self.sizes_in(tensor)
        if sizes is None:
            return tensor_util.constant_value(tensor)
        is_known = all(isinstance(size, int) for size in np.ravel(sizes))
        return sizes.astype(tensor.dtype.as_numpy_dtype) if is_known else None

    def sizes_in(self, tensor: tf.Tensor) -> Any:
        """Return the sizes in an integer tensor of rank 0 or 1, an array; otherwise `None`."""
        return self._read_once(self._sizes, tensor, lambda source: read_sizes(self, source))

    def set_sizes(self, tensor: tf.Tensor, sizes: Any) -> None:
        """Set the known values of an integer tensor."""
        self._sizes[tensor.ref()] = sizes

    def dims_of(self, tensor: tf.Tensor) -> list[AnySize] | None:
        """Return the sizes of a tensor's axes over all replicas; `None` if its rank is unknown."""
        dims: list[AnySize] | None = self._read_once(self._dims, tensor, self._read_dims)
        return dims

    def _read_dims(self, tensor: tf.Tensor) -> list[AnySize] | None:
        if tensor.shape.rank is None:
            return None
        placement = self._placements.get(tensor.ref())
        dims: list[AnySize] = []
        for axis, size in enumerate(tensor.shape.as_list()):
            if isinstance(placement, Shard) and placement.axis == axis:
                dims.append(placement.rows.total)
            else:
                dims.append(as_size(AxisSize(tensor, axis)) if size is None else int(size))
        return dims

    def shape_of(self, tensor: tf.Tensor) -> tf.TensorShape:
        """Return the shape of a tensor over all replicas: its traced shape, with the known dims."""
        dims = None if tensor.dtype in (tf.resource, tf.variant) else self.dims_of(tensor)
        if dims is None:
            return tensor.shape
        known = [size if isinstance(size, int) else None for size in dims]
        return tensor.shape.merge_with(known)

    def expected_elements(self, tensor: tf.Tensor) -> int | None:
        """Return the expected number of elements of a whole tensor; `None` if unknown."""
        dims = self.dims_of(tensor)
        return None if dims is None else expected_number(math.prod(dims), self.step.batch_rows)

    def set_dims(self, tensor: tf.Tensor, dims: Sequence[AnySize]) -> None:
        """Set the sizes of a tensor's axes, where its traced shape does not say them."""
        self._dims[tensor.ref()] = list(dims)

    # Rows

    def named_rows(self, tensor: tf.Tensor) -> Rows | None:
        """Return the rows that the first column of a matrix of indices names, as in `tf.where(x)`.

        Each row of the matrix names a row of `x`, and is on the same replica as the named row. A
        vector of indices has `Shard.within` instead. For the dense shape of such a matrix, return
        the rows that its first element counts.
        """
        return self._named_rows.get(tensor.ref())

    def name_rows(self, tensor: tf.Tensor, rows: Rows) -> None:
        """Set the rows that the first column of a matrix of indices names."""
        self._named_rows[tensor.ref()] = rows

    def rows_of(self, size: AnySize) -> Rows | None:
        """Return a division of an axis of this size, if it is a multiple of a batch's rows.

        If the step has made divisions of several segments with this total, as by `concat([a, a])`,
        the latest is returned: the new axis most likely meets a tensor with this division.
        """
        found = rows_of(size)
        if found is None or found.segments[0][1] != 1:
            layouts = reversed(self.step.layouts)
            return next((rows for rows in layouts if rows.total == size), found)
        return found

    def merge_rows(self, rows: Rows, others: Rows, op: tf.Operation) -> bool:
        """Assume that two inputs of the step have equally many rows; return whether they can.

        `op` needs the assumption. Each step checks it at the beginning; in a branch or loop, each
        run of the branch or of the loop's body checks it.
        """
        if self.is_conditional and not self.can_check:
            return False
        if len(rows.segments) != 1 or len(others.segments) != 1:
            return False
        (axis, unit), (other, others_unit) = rows.segments[0], others.segments[0]
        axis, other = axis.root(), other.root()
        if unit != others_unit or not axis.may_equal(other):
            return False
        self.assumed.append(Assumption(axis, other, op, axis.merge(other)))
        return True

    @property
    def own_assumptions(self) -> list[Assumption]:
        """The assumptions that hold in this body only."""
        return self.assumed if self.is_conditional else []

    @contextlib.contextmanager
    def hold_assumptions(self) -> Iterator[None]:
        """Let the assumptions of a planned body hold."""
        for assumption in self.own_assumptions:
            assumption.undo = assumption.batch_axis.root().merge(assumption.other)
        try:
            yield
        finally:
            self.suspend_assumptions()

    def suspend_assumptions(self) -> None:
        """Suspend the assumptions of this body: they are true only inside the body."""
        for assumption in reversed(self.own_assumptions):
            assumption.undo()

    def undo_assumptions(self, since: int) -> None:
        """Undo all assumptions but the first `since`, after a plan was given up."""
        while len(self.assumed) > since:
            self.assumed.pop().undo()

    def count_rows(self, size: AnySize | Rows) -> StageNumber:
        """Plan to count the rows that a size depends on; return the stage that knows them."""
        stage = INPUTS
        for batch_axis in batch_axes_in(size.total if isinstance(size, Rows) else size):
            if batch_axis.source is not None:
                if self.parent is not None:
                    raise NeedsCollectiveError(batch_axis.name)
                tensor, _ = batch_axis.source
                self.counted[batch_axis] = self.stage_of(tensor).next_round
                stage = max(stage, self.counted[batch_axis])
        return stage
