"""`GlobalViewStrategy`: runs steps as the program of one device, divided over the replicas."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, mirrored_strategy, values
from tensorflow.python.eager import def_function
from tensorflow.python.framework import type_spec

from .. import _upstream
from .collectives import Collectives
from .explain import NOMINAL_ROWS, Explanation, say
from .plan import Planner
from .run import partition, run_whole


class GlobalVariables(distribute_lib.StrategyExtendedV2):
    """Gives every variable a copy on each replica, also metrics': their values are global."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        super().__init__(*args, **kwargs)

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        kwargs["synchronization"] = tf.VariableSynchronization.ON_WRITE
        kwargs["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        made = super()._create_variable(next_creator, **kwargs)
        if isinstance(made, values.DistributedVariable):
            self._variables[id(made._primary.handle)] = made
        return made

    def copies_of(self, handle: Any) -> list[Any] | None:
        """Return the handles of all copies of a variable; `None` if it is alone."""
        variable = self._variables.get(id(handle))
        return None if variable is None else [copy.handle for copy in variable.values]

    def variables(self) -> list[Any]:
        """Return all variables that have a copy on each replica."""
        return list(self._variables.values())

    def update(
        self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Call a function with a variable, which in a traced step is its first copy."""
        if _upstream.traced_strategy() is not None:
            return fn(var, *args, **(kwargs or {}))
        return super().update(var, fn, args, kwargs, group)

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        """Make variables beside another one, which in a traced step all are."""
        if _upstream.traced_strategy() is not None:
            return tf.name_scope("")
        return super().colocate_vars_with(colocate_with_variable)


class GlobalViewExtended(GlobalVariables, mirrored_strategy.MirroredExtended):
    """TensorFlow's implementation of a strategy of one machine, with such variables."""


class GlobalRows(values.PerReplica):
    """A result of a step that stays divided: each replica's rows of a batch."""

    @property
    def _type_spec(self) -> GlobalRowsSpec:
        return GlobalRowsSpec(*(type_spec.type_spec_from_value(part) for part in self.values))


class GlobalRowsSpec(values.PerReplicaSpec):
    """What a `tf.function` that returns such rows knows of them."""

    value_type = property(lambda self: GlobalRows)

    def _from_components(self, parts: Any) -> GlobalRows:
        return GlobalRows(parts)


class GlobalViewStrategy(tf.distribute.Strategy):
    """Base class of strategies whose steps see the global batch.

    A step is traced once, as the program of one device, and divided over the replicas. Inside it
    `num_replicas_in_sync` is 1, and a sum over replicas does nothing: code that was written for
    other strategies comes out the same.
    """

    explanations: list[Explanation]
    explained_rows: int | None = None  # of a batch, while a step is explained

    def start_global_view(self) -> None:
        """Make what the strategy stores of its steps."""
        self.explanations = []
        self._said: set[str] = set()
        self._compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas; 1 inside a step, which sees the global batch."""
        if _upstream.traced_strategy() is self:
            return 1
        return int(self.extended._num_replicas_in_sync)

    @_upstream.unconverted
    def run_step(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any = None,
        *,
        splits: bool = False,
        keeps_rows: bool = True,
        jit_compile: bool = False,
    ) -> Any:
        """Run a step for the global batch; see `kdist.spmd.run.partition`."""
        kwargs = kwargs or {}
        if _upstream.traced_strategy() is self:  # a step within a step
            return fn(*args, **kwargs)
        if tf.executing_eagerly():
            if isinstance(fn, def_function.Function):
                return self._compiled_step(fn)(args, kwargs)
            return run_whole(self, fn, args, kwargs, self.extended.variables, self.collectives())
        if self.extended._num_replicas_in_sync == 1:
            args, kwargs = tf.nest.map_structure(self._only_part, (args, kwargs))
            with _upstream.one_device(self):
                return fn(*args, **kwargs)
        result, explanation = partition(
            self,
            fn,
            args,
            kwargs,
            copies_of=self.extended.copies_of,
            collectives=self.collectives(),
            splits=splits,
            keeps_rows=keeps_rows,
            jit_compile=jit_compile,
            nominal_rows=self.explained_rows or NOMINAL_ROWS,
            make_rows=GlobalRows,
        )
        self.explanations = [*self.explanations[-7:], explanation]
        if self.explained_rows is None:
            say(explanation, self._said)
        return result

    def _only_part(self, value: Any) -> Any:
        if isinstance(value, values.DistributedValues) and not isinstance(
            value, values.DistributedVariable
        ):
            return self.experimental_local_results(value)[0]
        return value

    def _compiled_step(self, fn: Any) -> Any:
        if fn not in self._compiled:
            weak = weakref.ref(fn)

            def step(args: Any, kwargs: Any) -> Any:
                return self.run_step(cast(Any, weak()), args, kwargs)

            self._compiled[fn] = tf.function(step, autograph=False, reduce_retracing=True)
        return self._compiled[fn]

    def collectives(self) -> Collectives:
        """Return how the replicas exchange values."""
        devices = self.extended.worker_devices
        cross_device_ops = self.extended._cross_device_ops
        if type(cross_device_ops) is tf.distribute.ReductionToOneDevice:
            cross_device_ops = None  # adds up on the first device, too
        elif cross_device_ops is None:
            cross_device_ops = self.extended._get_cross_device_ops(None)
        return Collectives(devices, cross_device_ops)

    def compare_plan(self, planner: Planner) -> None:
        """Compare a step that all workers trace together with theirs, before it is written."""

    def reduce_global(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce results of steps: they are those of the global batch already."""
        reduce = functools.partial(_reduced, self, reduce_op, axis)
        return tf.nest.map_structure(reduce, value)

    @_upstream.unconverted
    def gather(self, value: Any, axis: int) -> Any:
        """Return all rows of a batch or of a step's result; what is whole stays as it is."""

        def gathered(one: Any) -> Any:
            if isinstance(one, values.DistributedValues):
                return self.collectives().gather(self.experimental_local_results(one), axis)[0]
            return one

        return tf.nest.map_structure(gathered, value)


def _reduced(strategy: Any, reduce_op: Any, axis: Any, value: Any) -> Any:
    if isinstance(value, values.DistributedVariable) or not isinstance(
        value, values.DistributedValues
    ):
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
