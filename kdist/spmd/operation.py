"""A rule's view of an operation, and a rule's decision about the operation.

A rule claims only facts that follow from the operation's definition. The rule gets an `Operation`
and returns a `Decision`, or `None` where the rule is not certain: then every replica computes the
whole operation. Computing the whole operation is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .functions import kernel_name
from .op_types import FUNCTION_CALLS
from .placements import REPLICATE, Partial, Placement, Shard
from .replica_reductions import Reduction
from .rows import Rows
from .sizes import AnySize
from .tensor_facts import TensorFacts


class ComputeWholeError(Exception):
    """The step has to be planned again, with `operations` computed whole."""

    def __init__(self, operations: Iterable[tf.Operation]) -> None:
        super().__init__("compute whole")
        self.operations = set(operations)


# Wanted forms of an operation's inputs: a placement, or an instance of the following classes.


@dataclass(frozen=True)
class LocalValue:
    """The form of the replica's local value, in any placement."""


@dataclass(frozen=True)
class BroadcastRows:
    """The form of a shard along an axis that may be broadcast: a single row is taken whole."""

    shard: Shard


@dataclass(frozen=True)
class LocalSizes:
    """The form of a vector of sizes, with the replica's own numbers of rows at some indices.

    `rows` pairs an element's index with the rows that the element counts. If `rows` is empty, the
    operation does not read the vector.
    """

    rows: tuple[tuple[int, Rows], ...]


Tensors = Sequence[tf.Tensor]
Form = Placement | LocalValue | BroadcastRows | LocalSizes
LOCAL = LocalValue()
NOT_READ = LocalSizes(())


def local_size(index: int, rows: Rows) -> LocalSizes:
    """Return the form of a size vector with the replica's number of rows as element `index`."""
    return LocalSizes(((index, rows),))


@dataclass
class Decision:
    """A rule's decision: how an operation is computed.

    Args:
        input_forms: The wanted form of each input.
        output_placements: The placements of the results.
        write: Called with the stage, the operation and its inputs; returns the results. `None`
            copies the operation.
        reduces_input: Whether a partial result is never exchanged. For a whole result, the replicas
            reduce the first input instead, and repeat the operation on the whole input. So all
            results with the same values share a reduction.
        needs: Sizes and rows that `write` computes with.
        needs_all_rows: Whether the operation needs the rows of all replicas by its definition, not
            for lack of a rule.
        on_one_replica: Whether the operation runs once, not on every replica.
        bodies: The plans of a loop's body or of a condition's branches.
    """

    input_forms: Sequence[Form]
    output_placements: Sequence[Placement]
    write: Callable[..., Sequence[Any]] | None = None
    reduces_input: bool = False
    needs: Iterable[AnySize | Rows] = ()
    needs_all_rows: bool = False
    on_one_replica: bool = False
    bodies: Sequence[TensorFacts] = ()


@dataclass
class Rewrite:
    """Operations that stand for an operation of the traced step.

    `write` writes them into the default graph, and returns the results.
    """

    write: Callable[[], Sequence[tf.Tensor]]


class Operation:
    """An operation of a traced step, as a rule sees it.

    An operation on rows of a batch sees divided weights whole: they are gathered for it, unless its
    rule wants the parts. `weights` has the placements of these inputs, by index; rules see them
    replicated, although each replica stores only a part.
    """

    def __init__(self, facts: TensorFacts, op: tf.Operation) -> None:
        self.facts, self.op = facts, op
        self.type: str = op.type
        self.inputs = [facts.resolve_alias(tensor) for tensor in op.inputs]
        self.placements = [facts.placement_of(tensor) for tensor in self.inputs]
        self.outputs: Sequence[tf.Tensor] = op.outputs
        self.weights: dict[int, Shard] = {}
        if facts.step.weight_bytes is not None and self.has_rows_of_batch:
            for index, placement in enumerate(self.placements):
                if isinstance(placement, Shard) and self._is_weight(index, placement):
                    self.weights[index] = placement.as_plain()
                    self.placements[index] = REPLICATE

    @property
    def has_rows_of_batch(self) -> bool:
        """Whether any input has rows of a batch."""
        return any(isinstance(p, Shard) and p.rows.is_batch for p in self.placements)

    def _is_weight(self, index: int, placement: Shard) -> bool:
        tensor = self.inputs[index]
        is_value = tensor.dtype != tf.resource and tensor.shape.is_fully_defined()
        return is_value and not placement.rows.is_batch

    def attr(self, name: str) -> Any:
        return self.op.get_attr(name)

    @property
    def in_body(self) -> bool:
        """Whether the operation is in the body of a loop, condition or compiled function."""
        return self.facts.parent is not None

    # Inputs

    def rank(self, index: int) -> int | None:
        """Return the rank of an input, if it is known."""
        rank: int | None = self.inputs[index].shape.rank
        return rank

    def constant(self, index: int) -> Any:
        """Return the value of an input if it is known while tracing."""
        return self.facts.constant_of(self.inputs[index])

    def sizes_in(self, index: int) -> Any:
        """Return the sizes in an integer input of rank 0 or 1, an array; else `None`."""
        return self.facts.sizes_in(self.inputs[index])

    def dims(self, index: int) -> list[AnySize] | None:
        """Return the sizes of an input's axes over all replicas."""
        if index in self.weights:
            return [*self.inputs[index].shape.as_list()]
        return self.facts.dims_of(self.inputs[index])

    def shard(self, index: int) -> Shard | None:
        """Return the placement of an input if it is divided."""
        placement = self.placements[index]
        return placement if isinstance(placement, Shard) else None

    def is_partial(self, index: int, reduction: Reduction | None = None) -> bool:
        """Whether an input has to be reduced over the replicas."""
        placement = self.placements[index]
        return isinstance(placement, Partial) and reduction in (None, placement.reduction)

    def named_rows(self, index: int) -> Rows | None:
        """Return the rows that an input's first column names: see `TensorFacts.named_rows`."""
        return self.facts.named_rows(self.inputs[index])

    @property
    def any_shard(self) -> bool:
        return any(isinstance(placement, Shard) for placement in self.placements)

    def first_shard(self, indices: Iterable[int]) -> Shard | None:
        """Return the placement of the first divided input among the inputs at `indices`."""
        return next((shard for index in indices if (shard := self.shard(index))), None)

    def try_align(self, placement: Placement, wanted: Shard) -> bool:
        """Return whether rows are divided as wanted; batches that may be equal are merged.

        Call this only where the operation is an error unless both axes have the same size, or one
        of the axes has a single row.
        """
        if not isinstance(placement, Shard) or placement.axis != wanted.axis:
            return False
        return placement.fits(wanted) or self.facts.merge_rows(placement.rows, wanted.rows, self.op)

    def whole_but(self, forms: Mapping[int, Form]) -> list[Form]:
        """Return the forms of all inputs: by index in `forms`, of all other inputs whole."""
        return [forms.get(index, REPLICATE) for index in range(len(self.inputs))]

    def rows_form(self, index: int, wanted: Shard, *, may_broadcast: bool = False) -> Form:
        """Return the form of an input with rows divided as wanted, after `try_align`.

        With `may_broadcast`, a single row is taken whole.
        """
        placement = self.placements[index]
        if may_broadcast and self.inputs[index].shape[wanted.axis] == 1:
            return REPLICATE
        if self.try_align(placement, wanted):
            return placement
        return BroadcastRows(wanted.as_plain()) if may_broadcast else wanted.as_plain()

    # Results

    def set_dims(self, output: tf.Tensor, dims: Sequence[AnySize]) -> None:
        """Set the sizes of a result's axes, where its traced shape does not say them."""
        self.facts.set_dims(output, dims)

    def complete_dims(self, output: tf.Tensor, dims: Sequence[AnySize] | None) -> None:
        """Set the sizes of a result's axes, unless its traced shape says all of them."""
        if dims is not None and not output.shape.is_fully_defined():
            self.set_dims(output, dims)

    def set_sizes(self, output: tf.Tensor, sizes: Any) -> None:
        """Set the known values of an integer result."""
        self.facts.set_sizes(output, sizes)

    def name_rows(self, output: tf.Tensor, rows: Rows) -> None:
        """Set the rows that a result's first column names."""
        self.facts.name_rows(output, rows)

    def add_layout(self, rows: Rows) -> Rows:
        """Remember a division of several segments, for later axes of its size; return `rows`."""
        self.facts.step.layouts.append(rows)
        return rows


Rule = Callable[[Operation], Decision | Rewrite | None]
RULES: dict[str, Rule] = {}


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of types of operations."""

    def register(function: Rule) -> Rule:
        for name in types:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
        return function

    return register


def find_rule(op: tf.Operation) -> Rule | None:
    """Return the rule of an operation's type, or of the kernel that it calls."""
    if not RULES:
        raise RuntimeError("no rule is registered: import kdist.spmd.rules")
    if op.type in FUNCTION_CALLS:
        kernel = kernel_name(op)
        return RULES.get(f"kernel:{kernel}" if kernel else "XlaCall")
    return RULES.get(op.type)
