"""The variables of a strategy, and TensorFlow's part of the strategy (`ExactExtended`).

Each replica has a copy of a variable, or a part of a divided variable (`divided_variables.py`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import (
    distribute_lib,
    input_lib,
    mirrored_strategy,
    values,
    values_util,
)
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
from tensorflow.python.ops import variables

from .._upstream.collective_launchers import set_key_base, set_launchers
from .._upstream.one_device_tracing import colocate_new_variables, one_device, traced_strategy
from ..errors import UserError
from .collectives import Collectives
from .divided_variables import DividedVariable, Division, choose_division
from .fixed_order import FixedOrder

_OUTSIDE = (
    "a variable of a kdist strategy is trained by a step that does not go through the strategy:"
    " make optimizers and their variables inside of `with strategy.scope():`, and call"
    " strategy.run(step, args=(...)) in the tf.function; run a step without tf.function outside of"
    " this scope"
)


def _make_copies_method(name: str) -> Any:
    """Return a method that changes elements of all copies; in a traced step, of the first copy."""

    def change(self: Any, *args: Any, **options: Any) -> Any:
        if values_util.is_saving_non_distributed():
            return getattr(self._primary, name)(*args, **options)
        for copy in self.values:
            with tf.device(copy.device):
                getattr(copy, name)(*args, **options)
        return self

    return change


_ASSIGNS: dict[str, Any] = {
    "assign": tf.raw_ops.AssignVariableOp,
    "assign_add": tf.raw_ops.AssignAddVariableOp,
    "assign_sub": tf.raw_ops.AssignSubVariableOp,
}


def _make_assign(method: str) -> Any:
    """Return a method that assigns to all copies; outside of steps, to copy after copy.

    TensorFlow's own method calls `update`, and takes ten times as long outside of steps.
    """

    def assign(
        self: Any, value: Any, use_locking: bool = False, name: Any = None, read_value: bool = True
    ) -> Any:
        if not self._is_outside_of_steps() or isinstance(value, tf.distribute.DistributedValues):
            original = getattr(values.MirroredVariable, method)
            return original(self, value, use_locking, name, read_value)
        value = tf.convert_to_tensor(value, self.dtype)
        first, *others = self.values
        # This assignment also checks the shape.
        getattr(first, method)(value, use_locking, name, read_value=False)
        for copy in others:
            _ASSIGNS[method](resource=copy.handle, value=value)
        return self

    return assign


class CopiedVariable(values.MirroredVariable):
    """A variable with a copy on every replica; a traced step uses the first copy."""

    requested: tuple[Any, Any] | None = None
    """The synchronization and aggregation that were requested; copies need neither."""

    @property
    def synchronization(self) -> Any:
        """The synchronization that was requested."""
        return super().synchronization if self.requested is None else self.requested[0]

    @property
    def aggregation(self) -> Any:
        """The aggregation that was requested."""
        return super().aggregation if self.requested is None else self.requested[1]

    @property
    def handle(self) -> Any:
        """The handle of the first copy, in a step."""
        try:
            return super().handle
        except ValueError as error:
            raise UserError(_OUTSIDE) from error

    assign, assign_add, assign_sub = map(_make_assign, _ASSIGNS)

    def _is_outside_of_steps(self) -> bool:
        """Whether no function is traced, no copy is the current one, and no other scope is open."""
        if not tf.executing_eagerly() or values_util.is_saving_non_distributed():
            return False
        if not tf.distribute.has_strategy():
            return True
        is_own = tf.distribute.get_strategy() is self.distribute_strategy
        return (
            is_own
            and tf.distribute.in_cross_replica_context()
            and not values_util.in_replica_update_context()
        )

    def __int__(self) -> int:
        return int(self._primary)

    def __float__(self) -> float:
        return float(self._primary)

    def __getitem__(self, key: Any) -> Any:
        return type(self._primary).__getitem__(self, key)  # Its `assign` changes all copies.

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Return rows, by their indices."""
        return self._get().sparse_read(indices, name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Any:
        """Return elements, or slices, by their indices."""
        return self._get().gather_nd(indices, name)

    scatter_nd_add = _make_copies_method("scatter_nd_add")
    scatter_nd_sub = _make_copies_method("scatter_nd_sub")
    scatter_nd_update = _make_copies_method("scatter_nd_update")
    scatter_nd_min = _make_copies_method("scatter_nd_min")
    scatter_nd_max = _make_copies_method("scatter_nd_max")
    batch_scatter_update = _make_copies_method("batch_scatter_update")
    _strided_slice_assign = _make_copies_method("_strided_slice_assign")


class _SameVariable(values.DistributedVariableTraceType):
    """Trace type that is equal only for the same variable.

    So a `tf.function` that is called with a variable is traced again for a different variable of
    the same shape.
    """

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _SameVariable)
        return same and self.distributed_variable is other.distributed_variable  # type: ignore[attr-defined]

    __hash__ = values.DistributedVariableTraceType.__hash__


class GlobalVariables(distribute_lib.StrategyExtendedV2):
    """Gives each device a copy or a part of every variable; metrics, too, have global values.

    Args:
        shards: The number of parts of each batch, over all workers; `None` for a part on each
            device.
        divides_state: Whether variables that are colocated with a variable, such as an optimizer's
            state, are divided over the replicas.
        divides_weights: Whether all other variables are divided, too.
    """

    _shards: int | None = None

    def __init__(
        self,
        *args: Any,
        shards: int | None = None,
        divides_state: bool = False,
        divides_weights: bool = False,
        **kwargs: Any,
    ) -> None:
        self._variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._creating = threading.local()
        self.divides_state = divides_state or divides_weights
        self.divides_weights = divides_weights
        super().__init__(*args, **kwargs)
        if shards is None:
            return
        total = self._num_replicas_in_sync
        if shards < 1 or shards % total:
            raise UserError(
                f"received shards={shards} for {total} replicas, but every replica needs the same"
                f" number of shards: pass a multiple of {total}"
            )
        self._shards = shards

    @property
    def _num_replicas_in_sync(self) -> int:
        """The number of parts into which TensorFlow divides each batch."""
        return self._shards or super()._num_replicas_in_sync

    def _input_workers_with_options(self, options: Any = None) -> Any:
        found = super()._input_workers_with_options(options)
        if self._shards is None:
            return found
        devices = tuple(found.compute_devices_for_worker(0))
        parts_per_device = len(self.shard_devices) // len(devices)
        return input_lib.InputWorkers([(found.worker_devices[0], devices * parts_per_device)])

    @property
    def parts(self) -> int:
        """The number of parts of each batch, over all workers."""
        return self._num_replicas_in_sync

    @property
    def in_fixed_order(self) -> bool:
        """Whether results have the same bits on any number of devices."""
        return self._shards is not None

    @functools.cached_property
    def shard_devices(self) -> tuple[str, ...]:
        """The device of each of this worker's parts, which are dealt out to devices in turn."""
        parts_per_device: int = self.parts // super()._num_replicas_in_sync
        return tuple(self.worker_devices) * parts_per_device

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        if getattr(self._creating, "on", False):  # The strategy's scope is entered a second time.
            return next_creator(**kwargs)
        self._creating.on = True
        try:
            return self._make_variable(next_creator, kwargs)
        finally:
            self._creating.on = False

    def _make_variable(self, next_creator: Any, options: dict[str, Any]) -> Any:
        is_state = options.get("colocate_with") is not None
        # In a traced step the colocated variable is a first copy.
        if traced_strategy() is not None or isinstance(
            options.get("colocate_with"), DividedVariable
        ):
            options.pop("colocate_with", None)
        value = options.get("initial_value")
        is_divided = self.divides_weights or (self.divides_state and is_state)
        if is_divided and value is not None:  # Without a value, a file is being loaded.
            value = value() if callable(value) else value
            options["initial_value"] = value = tf.convert_to_tensor(value, options.get("dtype"))
            division = choose_division(value.shape, self.parts)
            if division is not None:
                value = self._container_strategy().chiefs_value(value)
                return self._make_divided(next_creator, division, value, options)
        *requested, options["trainable"] = variables.validate_synchronization_aggregation_trainable(
            options.get("synchronization") or tf.VariableSynchronization.AUTO,
            options.get("aggregation") or tf.VariableAggregation.NONE,
            options.get("trainable"),
            options.get("name"),
        )
        options["synchronization"] = tf.VariableSynchronization.ON_WRITE
        options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        variable = super()._create_variable(next_creator, **options)
        if isinstance(variable, values.MirroredVariable):
            variable.__class__ = CopiedVariable
            if requested[0] == tf.VariableSynchronization.AUTO:
                requested[0] = options["synchronization"]
            variable.requested = (requested[0], requested[1])
        if isinstance(variable, values.DistributedVariable):
            self._variables[variable._primary.handle.ref()] = variable
            own = weakref.ref(variable)
            variable.__tf_tracing_type__ = lambda _: _SameVariable(own())
        return variable

    def _make_divided(
        self, next_creator: Any, division: Any, value: Any, options: dict[str, Any]
    ) -> DividedVariable:
        strategy = self._container_strategy()
        places = strategy.collectives().places
        blocks, parts = division.split_value(value, places), []
        name = options.get("name") or "Variable"
        options.pop("colocate_with", None)
        for place, block, device in zip(places, blocks, self.shard_devices, strict=True):
            given = {"initial_value": block, "name": f"{name}/part_{place}"}
            with tf.device(device):
                parts.append(next_creator(**{**options, **given}))
        variable = DividedVariable(
            parts=parts,
            division=division,
            places=places,
            strategy=strategy,
            shape=value.shape,
            name=name,
            trainable=options.get("trainable"),
        )
        self._variables[variable.handle.ref()] = variable
        return variable

    def copies_of(self, handle: Any) -> tuple[list[Any] | None, Division | None]:
        """Return the handles of a variable's copies or parts, and a divided variable's division.

        There is a handle for each shard of a batch, on the shard's device. Handles are `None` for a
        variable without copies; the division is `None` for a variable that is not divided.
        """
        variable = self._variables.get(handle.ref())
        if variable is None:
            return None, None
        if isinstance(variable, DividedVariable):
            return [part.handle for part in variable.parts], variable.division
        parts_per_device = len(self.shard_devices) // len(variable.values)
        return [copy.handle for copy in variable.values] * parts_per_device, None

    def update(
        self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Call a function with a variable; in a traced step with its first copy."""
        if traced_strategy() is not None:
            return fn(var, *args, **(kwargs or {}))
        if self.divides_state and self.parts > 1:
            # The function may change divided variables, too: it runs once, with the first copy.
            with one_device(self._container_strategy()):
                result = fn(var, *args, **(kwargs or {}))
            self.copy_first()
            return tf.group(*filter(tf.is_tensor, tf.nest.flatten(result))) if group else result
        return super().update(var, fn, args, kwargs, group)

    def copy_first(self, handles: Sequence[Any] | None = None) -> None:
        """Copy variables from the first replica to all other replicas.

        `handles` are the handles of the variables' first copies; `None` means all variables.
        """
        known = self._variables
        variables = known.values() if handles is None else [known.get(h.ref()) for h in handles]
        for variable in list(variables):
            if isinstance(variable, CopiedVariable):
                first, *others = variable.values
                for copy in others:
                    copy.assign(first.read_value())

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        """Make variables beside a variable; in a traced step, all variables are beside it."""
        if traced_strategy() is not None or isinstance(colocate_with_variable, DividedVariable):
            return colocate_new_variables(colocate_with_variable)
        if tf.distribute.get_strategy().extended is self:
            return super().colocate_vars_with(colocate_with_variable)
        if not tf.executing_eagerly() or tf.distribute.has_strategy():
            raise UserError(_OUTSIDE)
        return self._colocate_in_scope(colocate_with_variable)

    @contextlib.contextmanager
    def _colocate_in_scope(self, variable: Any) -> Iterator[None]:
        """Enter the scope: an optimizer made in the scope is built outside."""
        with self._container_strategy().scope(), super().colocate_vars_with(variable):
            yield


class ExactExtended(GlobalVariables, mirrored_strategy.MirroredExtended):
    """TensorFlow's implementation of a strategy of one machine, with `GlobalVariables`."""

    def __init__(self, strategy: tf.distribute.Strategy, **options: Any) -> None:
        set_key_base(strategy, is_local=True)
        super().__init__(strategy, **options)
        if isinstance(self._collective_ops, CollectiveAllReduce):
            set_launchers(self._collective_ops)

    def collectives(self) -> Collectives:
        """Return the exchanges of the replicas, on GPUs by TensorFlow's collectives."""
        if self.in_fixed_order:
            return FixedOrder(self.shard_devices)
        cross_device_ops = self._cross_device_ops
        if type(cross_device_ops) is tf.distribute.ReductionToOneDevice:
            cross_device_ops = None  # `Collectives` also adds up on the first device.
        elif cross_device_ops is None:
            cross_device_ops = self._get_cross_device_ops(None)
        return Collectives(self.shard_devices, cross_device_ops)
