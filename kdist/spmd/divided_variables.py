"""Divided variables, such as an optimizer's momentum: each replica has rows along an axis.

In a traced step a divided variable looks like a whole variable, and the placement of its handle
says how the variable is divided; `GraphPlan._gather_weights` plans the step's gathers of divided
weights. Everywhere else, reading the variable gathers the whole value.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values_util
from tensorflow.python.eager import record
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.trackable import base as trackable

from .._upstream.one_device_tracing import is_traced_whole, traced_strategy
from .functions import functions_are_traced

LEAST_ELEMENTS = 4096
"""Elements of the smallest variable that is divided: dividing a smaller variable saves nothing."""
_LARGEST_UNEVENNESS = 1.05  # The largest part is at most this many times an equal part.


@dataclass(frozen=True)
class Division:
    """Division of a variable over the replicas: the axis, and each replica's number of rows."""

    axis: int
    sizes: tuple[int, ...]

    def split_value(self, value: Any, places: Sequence[int]) -> list[Any]:
        """Return the rows of some replicas, which keep no memory of the whole value."""
        rows = tf.split(value, self.sizes, self.axis)
        # The results of `split` may share the memory of the whole value, and keep it.
        return [tf.raw_ops.DeepCopy(x=rows[place]) for place in places]


def choose_division(shape: Any, parts: int) -> Division | None:
    """Return the division of a variable of this shape into `parts` parts.

    `None` means that the variable stays whole: it is too small, or no axis divides into nearly
    equal parts.
    """
    shape = tf.TensorShape(shape)
    elements = shape.num_elements()
    if parts < 2 or elements is None or elements < LEAST_ELEMENTS:
        return None
    for axis, size in enumerate(shape.as_list()):
        if parts <= size and -(-size // parts) * parts <= _LARGEST_UNEVENNESS * size:
            rows, extra = divmod(size, parts)
            return Division(axis, tuple(rows + (place < extra) for place in range(parts)))
    return None


SCATTERS: dict[str, Any] = {
    "add": tf.tensor_scatter_nd_add,
    "sub": tf.tensor_scatter_nd_sub,
    "update": tf.tensor_scatter_nd_update,
    "min": tf.tensor_scatter_nd_min,
    "max": tf.tensor_scatter_nd_max,
}


def scatter_rows(kind: str, value: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with changed rows, as the methods `tf.Variable.scatter_*` change rows.

    `kind` is `"add"`, `"sub"`, `"update"`, `"min"`, `"max"`, `"mul"` or `"div"`; `indices` may have
    any shape, and `updates` has a row for each index, or is a scalar.
    """
    rest = tf.shape(value)[1:]
    updates = tf.broadcast_to(updates, tf.concat([tf.shape(indices), rest], 0))
    indices, updates = tf.reshape(indices, [-1]), tf.reshape(updates, tf.concat([[-1], rest], 0))
    if kind in SCATTERS:
        return SCATTERS[kind](value, indices[:, None], updates)
    factors = tf.math.unsorted_segment_prod(updates, indices, tf.shape(value)[0])
    return value * factors if kind == "mul" else value / factors


def _make_scatter(kind: str) -> Any:
    method = f"scatter_{kind}"

    def change(self: Any, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Any:
        if is_traced_whole():
            base = resource_variable_ops.UninitializedVariable
            return getattr(base, method)(self, sparse_delta, use_locking, name)
        if not isinstance(sparse_delta, tf.IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {sparse_delta!r}")
        changed = scatter_rows(kind, self.read_value(), sparse_delta.indices, sparse_delta.values)
        return self.assign(changed)

    return change


def _make_scatter_nd(kind: str) -> Any:
    method = f"scatter_nd_{kind}"

    def change(self: Any, indices: Any, updates: Any, name: Any = None) -> Any:
        if is_traced_whole():
            base = resource_variable_ops.UninitializedVariable
            return getattr(base, method)(self, indices, updates, name)
        return self.assign(SCATTERS[kind](self.read_value(), indices, updates))

    return change


def _make_assign(method: str) -> Any:
    def assign(
        self: Any, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        if is_traced_whole():
            base = resource_variable_ops.UninitializedVariable
            return getattr(base, method)(self, value, use_locking, name, read_value)
        assigned = []
        for part, block in zip(self.parts, self._own_blocks(value), strict=True):
            with tf.device(part.device):
                assigned.append(getattr(part, method)(block, read_value=False))
        return self if read_value or tf.executing_eagerly() else tf.group(assigned)

    return assign


def _is_exported() -> bool:
    """Whether a function is traced for a SavedModel, whose variables are whole."""
    is_saved = values_util.is_saving_non_distributed() and traced_strategy() is None
    return is_saved and not tf.executing_eagerly()


class DividedVariable(resource_variable_ops.UninitializedVariable):
    """A variable with a part on each replica.

    In a traced step, the variable's own handle stands for the whole value. The handle has no
    memory.

    Args:
        parts: The variables of this worker's replicas.
        division: The division of the value over the replicas of all workers.
        places: For each part, its index among the parts of all workers.
        strategy: The strategy that gathers the value.
        shape: The shape of the whole value.
        name: As in `tf.Variable`.
        trainable: As in `tf.Variable`.
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
        return self.division.split_value(value, self._places)

    def _gather_whole(self) -> Any:
        self._distribute_strategy.before_gathering(self.name)
        if tf.executing_eagerly() and self._distribute_strategy.workers > 1:
            return self._traced_gather()
        return self._gather_parts()

    def _gather_parts(self) -> Any:
        parts = [part.read_value() for part in self.parts]
        return self._distribute_strategy.collectives().gather(parts, self.division.axis)[0]

    @functools.cached_property
    def _traced_gather(self) -> Any:
        with functions_are_traced():
            return tf.function(self._gather_parts, autograph=False).get_concrete_function()

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        if is_traced_whole() or _is_exported():
            return super()._read_variable_op(no_copy)
        resource_variable_ops.variable_accessed(self)
        with record.stop_recording():  # The gradient of a read belongs to this variable.
            whole = tf.ensure_shape(self._gather_whole(), self.shape)
        record.record_operation("ReadVariableOp", [whole], [self.handle], lambda dy: [dy])
        return whole

    def is_initialized(self, name: str | None = None) -> Any:
        """Return whether all parts have values."""
        return tf.reduce_all([part.is_initialized() for part in self.parts], name=name)

    assign, assign_add, assign_sub = map(_make_assign, ("assign", "assign_add", "assign_sub"))
    scatter_add, scatter_sub, scatter_update, scatter_min, scatter_max, scatter_mul, scatter_div = (
        _make_scatter(kind) for kind in ("add", "sub", "update", "min", "max", "mul", "div")
    )
    scatter_nd_add, scatter_nd_sub, scatter_nd_update, scatter_nd_min, scatter_nd_max = (
        _make_scatter_nd(kind) for kind in ("add", "sub", "update", "min", "max")
    )

    def batch_scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: Any = None
    ) -> Any:
        """Assign a row to each index; the indices' leading axes are those of the variable."""
        if is_traced_whole():
            return super().batch_scatter_update(sparse_delta, use_locking, name)
        indices = tf.convert_to_tensor(sparse_delta.indices)
        at = tf.cast(tf.where(tf.ones_like(indices, tf.bool))[:, :-1], indices.dtype)
        at = tf.concat([at, tf.reshape(indices, [-1, 1])], 1)
        rest = tf.shape(sparse_delta.values)[tf.rank(indices) :]
        rows = tf.reshape(sparse_delta.values, tf.concat([[-1], rest], 0))
        return self.scatter_nd_update(at, rows)

    def _get_cross_replica(self) -> Any:
        return self.read_value()

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """Return rows of the whole value, by their indices."""
        if is_traced_whole():
            return super().sparse_read(indices, name)
        return tf.gather(self.read_value(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Any:
        """Return elements, or slices, of the whole value, by their indices."""
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

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> Any:
        children = super()._trackable_children(save_type, **options)
        if save_type == "savedmodel":  # An exported function reads the parts.
            places = zip(self._places, self.parts, strict=True)
            children = {**children, **{f"part_{place}": part for place, part in places}}
        return children

    def _serialize_to_tensors(self) -> Any:
        # The value is read when a file is written; all workers take part in the gather.
        return {trackable.VARIABLE_VALUE_KEY: self.read_value()}

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self.assign(restored_tensors[trackable.VARIABLE_VALUE_KEY], read_value=False)
