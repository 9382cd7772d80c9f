"""The variables of a strategy, and TensorFlow's part of it (`GlobalViewExtended`).

Each replica has a copy of a variable, or a part of those that are divided.

Of a divided variable, such as an optimizer's momentum, each replica has its rows along one axis. In
a traced step it is a whole one, and the placement of its handle says how it is divided; everywhere
else its value is put together.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
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
from tensorflow.python.ops import resource_variable_ops, variables
from tensorflow.python.trackable import base as trackable

from .._upstream.collective_launchers import set_key_base, set_launchers
from .._upstream.steps import is_traced_whole, made_beside, one_device, traced_strategy
from ..errors import UserError

SMALLEST = 4096
"""Elements of the smallest variable that is divided: for a smaller one it saves nothing."""
_MOST = 1.05  # times an equal share, of what one replica gets


@dataclass(frozen=True)
class Division:
    """How a variable is divided.

    Attributes:
        axis: Along which.
        sizes: The number of rows that each replica has.
    """

    axis: int
    sizes: tuple[int, ...]

    def blocks(self, value: Any) -> list[Any]:
        """Return the rows of each replica."""
        return tf.split(value, self.sizes, self.axis)  # type: ignore[no-any-return]


def division_of(shape: Any, parts: int) -> Division | None:
    """Return how to divide a variable of a shape; `None` if it is too small.

    Args:
        shape: Its shape.
        parts: The number of replicas.
    """
    shape = tf.TensorShape(shape)
    elements = shape.num_elements()
    if parts < 2 or elements is None or elements < SMALLEST:
        return None
    for axis, size in enumerate(shape.as_list()):
        if parts <= size and -(-size // parts) * parts <= _MOST * size:
            each, more = divmod(size, parts)
            return Division(axis, tuple(each + (place < more) for place in range(parts)))
    return None


SCATTERS: dict[str, Any] = {
    "add": tf.tensor_scatter_nd_add,
    "sub": tf.tensor_scatter_nd_sub,
    "update": tf.tensor_scatter_nd_update,
    "min": tf.tensor_scatter_nd_min,
    "max": tf.tensor_scatter_nd_max,
}


def with_rows(kind: str, value: Any, indices: Any, updates: Any) -> Any:
    """Return a value of which rows are changed, as `tf.Variable.scatter_add` and its like do.

    Args:
        kind: `"add"`, `"sub"`, `"update"`, `"min"`, `"max"`, `"mul"` or `"div"`.
        value: The tensor.
        indices: Of its rows, in any shape.
        updates: A row for each of them, or a scalar.
    """
    rest = tf.shape(value)[1:]
    updates = tf.broadcast_to(updates, tf.concat([tf.shape(indices), rest], 0))
    indices, updates = tf.reshape(indices, [-1]), tf.reshape(updates, tf.concat([[-1], rest], 0))
    if kind in SCATTERS:
        return SCATTERS[kind](value, indices[:, None], updates)
    factors = tf.math.unsorted_segment_prod(updates, indices, tf.shape(value)[0])
    return value * factors if kind == "mul" else value / factors


def _rows_changed(kind: str) -> Any:
    """Return a method of variables that changes rows."""
    method = f"scatter_{kind}"

    def change(self: Any, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Any:
        if is_traced_whole():
            base = resource_variable_ops.UninitializedVariable
            return getattr(base, method)(self, sparse_delta, use_locking, name)
        if not isinstance(sparse_delta, tf.IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {sparse_delta!r}")
        changed = with_rows(kind, self.read_value(), sparse_delta.indices, sparse_delta.values)
        return self.assign(changed)

    return change


_OUTSIDE = (
    "a variable of a kdist strategy is trained by a step that does not go through the strategy: in"
    " the tf.function, call strategy.run(step, args=(...)), and make optimizers and their variables"
    " inside of `with strategy.scope():`"
)


def _of_copies(name: str) -> Any:
    """Return a method that changes elements of all copies; in a traced step, of the first one."""

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


def _assigned(name: str) -> Any:
    """Return a method that assigns to the copies; outside of steps to one after another.

    TensorFlow does the same by a call of `update`, which takes ten times as long.
    """

    def assign(
        self: Any, value: Any, use_locking: bool = False, name_: Any = None, read_value: bool = True
    ) -> Any:
        if not self._is_outside_of_steps() or isinstance(value, tf.distribute.DistributedValues):
            original = getattr(values.MirroredVariable, name)
            return original(self, value, use_locking, name_, read_value)
        value = tf.convert_to_tensor(value, self.dtype)
        first, *others = self.values
        getattr(first, name)(value, use_locking, name_, read_value=False)  # checks the shape, too
        for copy in others:
            _ASSIGNS[name](resource=copy.handle, value=value)
        return self

    return assign


class CopiedVariable(values.MirroredVariable):
    """A variable of which every replica has a copy; to a traced step it is the first copy."""

    asked: tuple[Any, Any] | None = None
    """The synchronization and aggregation that it was made with; copies need neither."""

    @property
    def synchronization(self) -> Any:
        """The synchronization that it was made with."""
        return super().synchronization if self.asked is None else self.asked[0]

    @property
    def aggregation(self) -> Any:
        """The aggregation that it was made with."""
        return super().aggregation if self.asked is None else self.asked[1]

    @property
    def handle(self) -> Any:
        """The handle of the first copy, in a step."""
        try:
            return super().handle
        except ValueError as error:
            raise UserError(_OUTSIDE) from error

    assign, assign_add, assign_sub = map(_assigned, _ASSIGNS)

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
        return type(self._primary).__getitem__(self, key)  # whose `assign` changes all copies

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Return the rows that are named."""
        return self._get().sparse_read(indices, name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Any:
        """Return the elements, or slices, that are named."""
        return self._get().gather_nd(indices, name)

    (
        scatter_nd_add,
        scatter_nd_sub,
        scatter_nd_update,
        scatter_nd_min,
        scatter_nd_max,
        batch_scatter_update,
        _strided_slice_assign,
    ) = (
        _of_copies(name)
        for name in (
            *(f"scatter_nd_{kind}" for kind in ("add", "sub", "update", "min", "max")),
            "batch_scatter_update",
            "_strided_slice_assign",
        )
    )


class DividedVariable(resource_variable_ops.UninitializedVariable):
    """A variable of which each replica has a part.

    Its own handle stands for the whole value in a traced step; it has no memory.

    Args:
        parts: The variables of this worker's replicas.
        division: How the value is divided over the replicas of all workers.
        places: For each part, its place among all.
        strategy: The strategy that gathers the value.
        shape: Of the whole value.
        name: Of the variable.
        trainable: Whether gradient tapes watch it.
    """

    def __init__(
        self,
        *,
        parts: Sequence[Any],
        division: Division,
        places: Sequence[int],
        strategy: Any,
        shape: Any,
        name: str | None,
        trainable: bool | None,
    ) -> None:
        super().__init__(
            trainable=trainable,
            name=name,
            shape=shape,
            dtype=parts[0].dtype,
            synchronization=tf.VariableSynchronization.ON_WRITE,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            distribute_strategy=strategy,
        )
        self.parts, self.division, self._places = tuple(parts), division, tuple(places)

    def _own_blocks(self, value: Any) -> list[Any]:
        value = tf.convert_to_tensor(value, self.dtype)
        if not self.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"received a value of the shape {value.shape} for the variable {self.name} of the"
                f" shape {self.shape}"
            )
        blocks = self.division.blocks(value)
        return [blocks[place] for place in self._places]

    def _whole(self) -> Any:
        self._distribute_strategy.before_gathering(self.name)
        if tf.executing_eagerly() and self._distribute_strategy.workers > 1:
            return self._traced_gather()
        return self._gather()

    def _gather(self) -> Any:
        parts = [part.read_value() for part in self.parts]
        return self._distribute_strategy.collectives().gather(parts, self.division.axis)[0]

    @functools.cached_property
    def _traced_gather(self) -> Any:
        eagerly = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(False)
        try:
            return tf.function(self._gather, autograph=False).get_concrete_function()
        finally:
            tf.config.run_functions_eagerly(eagerly)

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        if is_traced_whole():
            return super()._read_variable_op(no_copy)
        return tf.ensure_shape(self._whole(), self.shape)

    def is_initialized(self, name: str | None = None) -> Any:
        """Return whether all parts have values."""
        return tf.reduce_all([part.is_initialized() for part in self.parts], name=name)

    def assign(
        self, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Set the whole value."""
        return self._change("assign", value, use_locking, name, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Add to the whole value."""
        return self._change("assign_add", delta, use_locking, name, read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Subtract from the whole value."""
        return self._change("assign_sub", delta, use_locking, name, read_value)

    def _change(
        self, method: str, value: Any, use_locking: Any, name: Any, read_value: bool
    ) -> Any:
        if is_traced_whole():
            change = getattr(super(), method)
            return change(value, use_locking=use_locking, name=name, read_value=read_value)
        made = []
        for part, block in zip(self.parts, self._own_blocks(value), strict=True):
            with tf.device(part.device):
                made.append(getattr(part, method)(block, read_value=False))
        if read_value or tf.executing_eagerly():
            return self
        return tf.group(made)

    scatter_add, scatter_sub, scatter_update, scatter_min, scatter_max, scatter_mul, scatter_div = (
        _rows_changed(kind) for kind in ("add", "sub", "update", "min", "max", "mul", "div")
    )

    def _get_cross_replica(self) -> Any:
        return self.read_value()

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Return the rows of the whole value that are named."""
        if is_traced_whole():
            return super().sparse_read(indices, name)
        return tf.gather(self.read_value(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Any:
        """Return the elements, or slices, of the whole value that are named."""
        if is_traced_whole():
            return super().gather_nd(indices, name)
        return tf.gather_nd(self.read_value(), indices, name=name)

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: Any, **masks: int
    ) -> Any:
        if is_traced_whole():
            return super()._strided_slice_assign(begin, end, strides, value, name, **masks)
        changed = tf.raw_ops.TensorStridedSliceUpdate(
            input=self.read_value(),
            begin=begin,
            end=end,
            strides=strides,
            value=tf.convert_to_tensor(value, self.dtype),
            **masks,
        )
        return self.assign(changed)

    def _serialize_to_tensors(self) -> Any:
        # The value is read when a file is written: by all workers.
        return {trackable.VARIABLE_VALUE_KEY: self.read_value()}

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self._change(
            "assign", restored_tensors[trackable.VARIABLE_VALUE_KEY], None, None, False
        )


class _OneVariable(values.DistributedVariableTraceType):
    """Tells a variable from others of its shape, for which TensorFlow runs what it traced for it.

    A `tf.function` that is called with a variable is traced again for another one.
    """

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _OneVariable)
        return same and self.distributed_variable is other.distributed_variable  # type: ignore[attr-defined]

    __hash__ = values.DistributedVariableTraceType.__hash__


class GlobalVariables(distribute_lib.StrategyExtendedV2):
    """Gives every variable a copy on each device, also metrics': their values are global.

    Args:
        shards: Into how many parts each batch is divided, over all workers; `None` for one on each
            device.
        divides_state: Whether variables that are made beside others, as an optimizer's state, are
            divided over the replicas.
    """

    _shards: int | None = None

    def __init__(
        self, *args: Any, shards: int | None = None, divides_state: bool = False, **kwargs: Any
    ) -> None:
        self._variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._creating = threading.local()
        self.divides_state = divides_state
        super().__init__(*args, **kwargs)
        if shards is None:
            return
        total = self._num_replicas_in_sync
        if shards < 1 or shards % total:
            raise UserError(
                f"received shards={shards} for {total} replicas, each of which has to have equally"
                f" many: pass a multiple of {total}"
            )
        self._shards = shards

    @property
    def _num_replicas_in_sync(self) -> int:
        """Into how many parts TensorFlow divides each batch."""
        return self._shards or super()._num_replicas_in_sync

    def _input_workers_with_options(self, options: Any = None) -> Any:
        found = super()._input_workers_with_options(options)
        if self._shards is None:
            return found
        devices = tuple(found.compute_devices_for_worker(0))
        each = len(self.shard_devices) // len(devices)
        return input_lib.InputWorkers([(found.worker_devices[0], devices * each)])

    @property
    def parts(self) -> int:
        """Into how many parts each batch is divided, over all workers."""
        return self._num_replicas_in_sync

    @property
    def in_fixed_order(self) -> bool:
        """Whether results have the same bits on any number of devices."""
        return self._shards is not None

    @functools.cached_property
    def shard_devices(self) -> tuple[str, ...]:
        """The device of each of this worker's parts of a batch, dealt out in turn."""
        each: int = self.parts // super()._num_replicas_in_sync
        return tuple(self.worker_devices) * each

    def _create_variable(self, next_creator: Any, **kwargs: Any) -> Any:
        if getattr(self._creating, "on", False):  # in the scope of the strategy a second time
            return next_creator(**kwargs)
        self._creating.on = True
        try:
            return self._created(next_creator, kwargs)
        finally:
            self._creating.on = False

    def _created(self, next_creator: Any, options: dict[str, Any]) -> Any:
        is_state = options.get("colocate_with") is not None
        # In a traced step the other variable is its first copy.
        if traced_strategy() is not None or isinstance(
            options.get("colocate_with"), DividedVariable
        ):
            options.pop("colocate_with", None)
        if self.divides_state and is_state:
            value = options["initial_value"]
            value = value() if callable(value) else value
            options["initial_value"] = value = tf.convert_to_tensor(value, options.get("dtype"))
            division = division_of(value.shape, self.parts)
            if division is not None:
                return self._make_divided(next_creator, division, value, options)
        *asked, options["trainable"] = variables.validate_synchronization_aggregation_trainable(
            options.get("synchronization") or tf.VariableSynchronization.AUTO,
            options.get("aggregation") or tf.VariableAggregation.NONE,
            options.get("trainable"),
            options.get("name"),
        )
        options["synchronization"] = tf.VariableSynchronization.ON_WRITE
        options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        made = super()._create_variable(next_creator, **options)
        if isinstance(made, values.MirroredVariable):
            made.__class__ = CopiedVariable
            is_automatic = asked[0] == tf.VariableSynchronization.AUTO
            made.asked = (options["synchronization"] if is_automatic else asked[0], asked[1])
        if isinstance(made, values.DistributedVariable):
            self._variables[id(made._primary.handle)] = made
            own = weakref.ref(made)
            made.__tf_tracing_type__ = lambda _: _OneVariable(own())
        return made

    def _make_divided(
        self, next_creator: Any, division: Any, value: Any, options: dict[str, Any]
    ) -> DividedVariable:
        """Make a variable of which each replica has a part."""
        strategy = self._container_strategy()
        places = strategy.collectives().places
        blocks, parts = division.blocks(value), []
        name = options.get("name") or "Variable"
        options.pop("colocate_with", None)
        for place, device in zip(places, self.worker_devices, strict=True):
            given = {"initial_value": blocks[place], "name": f"{name}/part_{place}"}
            with tf.device(device):
                parts.append(next_creator(**{**options, **given}))
        made = DividedVariable(
            parts=parts,
            division=division,
            places=places,
            strategy=strategy,
            shape=value.shape,
            name=name,
            trainable=options.get("trainable"),
        )
        self._variables[id(made.handle)] = made
        return made

    def copies_of(self, handle: Any) -> tuple[list[Any] | None, Division | None]:
        """Return the handles of a variable's copies or parts, and how it is divided if it is.

        There is one for each part of a batch, on its device; `None` if the variable is alone.
        """
        variable = self._variables.get(id(handle))
        if variable is None:
            return None, None
        if isinstance(variable, DividedVariable):
            return [part.handle for part in variable.parts], variable.division
        each = len(self.shard_devices) // len(variable.values)
        return [copy.handle for copy in variable.values] * each, None

    def update(
        self, var: Any, fn: Any, args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Call a function with a variable, which in a traced step is its first copy."""
        if traced_strategy() is not None:
            return fn(var, *args, **(kwargs or {}))
        if self.divides_state and self.parts > 1:
            return self._update_once(var, fn, args, kwargs, group)
        return super().update(var, fn, args, kwargs, group)

    def _update_once(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        """Call a function with the first copy, as what it changes may be divided."""
        with one_device(self._container_strategy()):
            result = fn(var, *args, **(kwargs or {}))
        self.copy_first()
        return tf.group(*filter(tf.is_tensor, tf.nest.flatten(result))) if group else result

    def copy_first(self) -> None:
        """Give the other replicas the first one's values of all variables."""
        for variable in list(self._variables.values()):
            if not isinstance(variable, DividedVariable):
                first, *others = variable.values
                for other in others:
                    other.assign(first.read_value())

    def colocate_vars_with(self, colocate_with_variable: Any) -> Any:
        """Make variables beside another one, which in a traced step all are."""
        if traced_strategy() is not None or isinstance(colocate_with_variable, DividedVariable):
            return made_beside(colocate_with_variable)
        if tf.distribute.get_strategy().extended is not self:
            raise UserError(_OUTSIDE)
        return super().colocate_vars_with(colocate_with_variable)


class GlobalViewExtended(GlobalVariables, mirrored_strategy.MirroredExtended):
    """TensorFlow's implementation of a strategy of one machine, with such variables."""

    def __init__(self, strategy: tf.distribute.Strategy, **options: Any) -> None:
        set_key_base(strategy, is_local=True)
        super().__init__(strategy, **options)
        if isinstance(self._collective_ops, CollectiveAllReduce):
            set_launchers(self._collective_ops)
