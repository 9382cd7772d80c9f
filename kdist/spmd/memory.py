"""Estimate of the memory that a replica needs for the tensors of a planned step.

Tensors live from the operation that makes them to the last operation that reads them, in the order
of the traced step. TensorFlow may run operations in another order, and its kernels may need memory
of their own.
"""

from __future__ import annotations

from collections import defaultdict

import tensorflow as tf

from .costs import Costs
from .op_types import ALIASES
from .placements import Shard
from .plan import GraphPlan, bytes_of
from .redistribute import TakeRowsOfSum, TakeWeight
from .tensor_facts import Ref


class TensorLifetimes:
    """The first and last operation of a planned step that need each of a replica's tensors."""

    def __init__(self, plan: GraphPlan, costs: Costs, replicas: int) -> None:
        self._plan, self._costs, self._replicas = plan, costs, replicas
        self._sources: dict[Ref, tf.Tensor] = {}  # For results that share their input's memory.
        self._changes: dict[int, float] = defaultdict(float)
        self._weights: dict[int, float] = {
            number: sum(bytes_of(gather.tensor) for gather in gathers.values())
            for number, gathers in plan.weights.items()
        }
        begins: dict[Ref, tuple[int, float]] = {}
        last: dict[Ref, int] = {}
        for index, planned in enumerate(plan.operations):
            for tensor, conversion in zip(planned.inputs, planned.conversions, strict=True):
                key = self._source_of(tensor).ref()
                if isinstance(conversion, TakeWeight) or key not in begins:
                    continue
                if isinstance(conversion, TakeRowsOfSum):  # The sum is scattered once it is there.
                    begin, size = begins[key]
                    self._add_lifetime(begin + 1, index, size / replicas)
                else:
                    last[key] = index
            for tensor in planned.op.outputs:
                if planned.op.type in ALIASES:
                    self._sources[tensor.ref()] = self._source_of(planned.inputs[0])
                else:
                    begins[tensor.ref()] = index, self._local_bytes(tensor)
        for ref, (index, size) in begins.items():
            self._add_lifetime(index, max(last.get(ref, index), index), size)

    def _source_of(self, tensor: tf.Tensor) -> tf.Tensor:
        return self._sources.get(tensor.ref(), tensor)

    def _add_lifetime(self, first: int, last: int, size: float) -> None:
        self._changes[first] += size
        self._changes[last + 1] -= size

    def _local_bytes(self, tensor: tf.Tensor) -> float:
        """Return the bytes of a replica's value; 0 for a value that shares a variable's memory."""
        is_value = tensor.dtype not in (tf.resource, tf.variant)
        if not is_value or tensor.op.type in ("Const", "ReadVariableOp"):
            return 0.0
        is_divided = isinstance(self._plan.placement_of(tensor), Shard)
        return self._costs.bytes(tensor) / (self._replicas if is_divided else 1)

    def peak_bytes(self) -> float:
        """Return the most bytes that live at a time, with gathered weights and gradients."""
        live = most = 0.0
        for index, planned in enumerate(self._plan.operations):
            live += self._changes[index]
            # While a stage runs, the weights of the next stage are gathered.
            number = planned.stage.round
            weights = self._weights.get(number, 0.0) + self._weights.get(number + 1, 0.0)
            most = max(most, live + weights)
        return most

    def largest_weight_group(self) -> float:
        """Return the bytes of the largest group of weights that are gathered together."""
        return max(self._weights.values(), default=0.0)
