"""`GlobalViewStrategy`: runs a step as the program of one device, divided over the replicas.

`run` partitions the step (`partition.py`), whose program exchanges values by `collectives`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager import def_function

from .._upstream.steps import converted, one_device, traced_strategy, unconverted
from . import rules
from .collectives import Collectives
from .explanation import Explanation, warn_once
from .fixed_order import FixedOrder
from .partition import GlobalRows, Step, is_divided, partition, run_whole
from .plan import GraphPlan
from .replica_count import ReplicaCount, is_recognized, warning_in_step

__all__ = ["GlobalViewStrategy", "Step", "rules"]


class GlobalViewStrategy(tf.distribute.Strategy):
    """Base class of strategies whose steps see the global batch.

    A step is traced once, as the program of one device, and divided over the replicas. Inside it
    `num_replicas_in_sync` is 1, and a sum over replicas is the value itself. So code written for
    other strategies comes out the same if it reads that number inside the step, and does not tell
    replicas apart.
    """

    workers: int
    explained_rows: int | None = None  # of a batch, while a step is explained
    explanation: Explanation  # of that step

    def start_global_view(self) -> None:
        """Make the attributes in which the strategy stores its steps."""
        self._warned: set[str] = set()
        self._one_at_a_time = threading.RLock()
        self._compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas; 1 inside a step, which sees the global batch."""
        if traced_strategy() is self:
            return 1
        count = len(self.extended.worker_devices) * self.workers
        return ReplicaCount(count) if count > 1 else 1

    def constant_made(self, numbers: Any, constant: Any) -> None:
        """Warn of a number in a step that follows from the number of replicas outside of it.

        Args:
            numbers: The value and the shape of a constant, as the step has them.
            constant: The tensor.
        """
        if is_recognized(numbers):
            frames = constant.op.traceback or ()
            places = [(frame.filename, frame.lineno) for frame in frames]
            warn_once(warning_in_step(places), self._warned)

    @unconverted
    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` for the global batch, divided over the replicas.

        In `fn` there is one device: it sees the rows of all replicas, and `num_replicas_in_sync` is
        1. Its results are of the global batch; a result that has the batch's rows stays divided.

        Args:
            fn: The step.
            args: Its arguments; parts of batches are `PerReplica` values.
            kwargs: The same, by name.
            options: Accepted for compatibility with `tf.distribute.Strategy.run`.
        """
        del options
        return self.run_step(self.as_step(fn), args, kwargs)

    def as_step(self, fn: Callable[..., Any]) -> Step:
        """Return how a function is divided."""
        return Step(fn)

    @unconverted
    def run_step(self, step: Step, args: Any, kwargs: Any = None) -> Any:
        """Run a step, as `run` does."""
        kwargs = kwargs or {}
        if traced_strategy() is self:  # a step within a step
            return step.fn(*args, **kwargs)
        if tf.executing_eagerly():
            if isinstance(step.fn, def_function.Function):
                with self._one_at_a_time:  # the collectives of two threads would meet
                    return self._compiled_step(step.fn)(args, kwargs)
            return run_whole(self, step.fn, args, kwargs)
        if self.extended._num_replicas_in_sync == 1:
            args, kwargs = tf.nest.map_structure(self._only_part, (args, kwargs))
            with one_device(self):
                return converted(step.fn)(*args, **kwargs)
        result, explanation = partition(self, step, args, kwargs)
        if self.explained_rows is None:
            warn_once(explanation.message(), self._warned)
        else:
            self.explanation = explanation
        return result

    def _only_part(self, value: Any) -> Any:
        return self.experimental_local_results(value)[0] if is_divided(value) else value

    def _compiled_step(self, fn: Any) -> Any:
        if fn not in self._compiled:
            weak = weakref.ref(fn)

            def step(args: Any, kwargs: Any) -> Any:
                return self.run_step(Step(cast(Any, weak())), args, kwargs)

            self._compiled[fn] = tf.function(step, autograph=False, reduce_retracing=True)
        return self._compiled[fn]

    def collectives(self) -> Collectives:
        """Return how the replicas exchange values, on GPUs by launchers of `GlobalViewExtended`."""
        devices = self.extended.shard_devices
        if self.extended.in_fixed_order:
            return FixedOrder(devices)
        cross_device_ops = self.extended._cross_device_ops
        if type(cross_device_ops) is tf.distribute.ReductionToOneDevice:
            cross_device_ops = None  # adds up on the first device, too
        elif cross_device_ops is None:
            cross_device_ops = self.extended._get_cross_device_ops(None)
        return Collectives(devices, cross_device_ops)

    def before_gathering(self, name: str) -> None:
        """Called before the value of a divided variable is put together."""

    def compare_plan(self, plan: GraphPlan) -> None:
        """Compare a step that all workers trace together with theirs, before it is written."""

    @unconverted
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce the result of a step: it is that of the global batch already.

        Rows of a batch that are divided over replicas are put together, and then reduced along
        `axis` if that is a number.
        """
        reduce = functools.partial(_reduced, self, reduce_op, axis)
        return tf.nest.map_structure(reduce, value)

    @unconverted
    def gather(self, value: Any, axis: int) -> Any:
        """Return all rows of a batch or of a step's result; a whole tensor stays as it is."""

        def gathered(part: Any) -> Any:
            if isinstance(part, values.DistributedValues):
                return self.collectives().gather(self.experimental_local_results(part), axis)[0]
            return part

        return tf.nest.map_structure(gathered, value)


def _reduced(strategy: Any, reduce_op: Any, axis: Any, value: Any) -> Any:
    if not is_divided(value):
        whole = value
    else:
        parts: Sequence[Any] = strategy.experimental_local_results(value)
        if not isinstance(value, GlobalRows) and axis is None:
            return tf.distribute.Strategy.reduce(strategy, reduce_op, value, axis)
        whole = strategy.collectives().gather(parts, 0)[0]
    if axis is None:
        return whole
    by_sum = reduce_op in (tf.distribute.ReduceOp.SUM, "SUM", "sum")
    return (tf.reduce_sum if by_sum else tf.reduce_mean)(whole, axis)
