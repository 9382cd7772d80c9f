"""TensorFlow's lists of tensors (`TensorList`), as loops and their gradients use; optionals.

A condition returns optionals for its gradient: lists of at most one tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..functions import shapes_attribute
from ..operation import LOCAL, ComputeWholeError, Decision, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, ListOf, Replicate, Shard
from ..sizes import AxisSize, BatchAxis, Element, as_size, batch_axes_in, symbols_in
from ..stage import Stage, local_shape


@rule("EmptyTensorList", "TensorListReserve")
def make_list(op: Operation) -> Decision | None:
    """Make a list for elements of a shape; on a replica, the number of rows is left open."""

    def make_local_list(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        element, shape = stage.plan.step.list_elements.get(op), inputs[0]
        if isinstance(element, Shard):
            shape = _open_local_shape(element, stage.plan.sizes_in(op.inputs[0]), shape.dtype)
        return stage.copy_operation(op, [shape, *inputs[1:]])

    return Decision([LOCAL, REPLICATE], [ListOf(None, op.op)], make_local_list)


def _open_local_shape(element: Shard, sizes: Any, dtype: Any) -> Any:
    """Return the shape of a list's elements on a replica, with the number of its rows left open."""
    if sizes is None or np.ndim(sizes) != 1:
        return tf.constant(-1, dtype)
    is_known = [isinstance(s, int) and axis != element.axis for axis, s in enumerate(sizes)]
    return tf.constant([s if k else -1 for s, k in zip(sizes, is_known, strict=True)], dtype)


@rule("TensorListFromTensor")
def list_from_tensor(op: Operation) -> Decision | None:
    """Make a list of the slices of a tensor along its first axis."""
    shard = op.shard(0)
    if shard is not None and shard.axis > 0:
        element = shard.as_plain().on_axis(shard.axis - 1)

        def list_local_slices(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
            shape = _open_local_shape(element, op.inputs[0].shape.as_list()[1:], inputs[1].dtype)
            return stage.copy_operation(op, [inputs[0], shape])

        return Decision([LOCAL, LOCAL], [ListOf(element, op.op)], list_local_slices)
    return Decision([REPLICATE, REPLICATE], [ListOf(REPLICATE, op.op)])


def _find_list(op: Operation) -> ListOf | None:
    found = op.placements[0]
    return found if isinstance(found, ListOf) else None


@rule("TensorListSetItem", "TensorListPushBack")
def put_element(op: Operation) -> Decision | None:
    """Put an element into a list; all elements have the same placement."""
    index = 2 if op.type == "TensorListSetItem" else 1
    item = op.placements[index]
    lst = _find_list(op)
    if lst is None:
        return None
    if isinstance(item, Shard):
        item = item.as_plain()
    elif item != PARTIAL or not op.in_body:
        # Only a body keeps a sum partial: a body cannot sum over replicas, and no operation may
        # need the sum.
        item = REPLICATE
    sizes = _keep_batch_sizes(op.sizes_in(index)) if isinstance(item, Replicate) else None
    element = lst.element
    if element is None:
        element = item
    elif element != item:
        # A replicated element can be divided, but a divided element in a list cannot be gathered.
        if not isinstance(element, Shard):
            raise ComputeWholeError({lst.origin})
    elif not equal_sizes(sizes, lst.sizes):
        raise ComputeWholeError({lst.origin})
    op.facts.step.list_elements[lst.origin] = element
    forms = op.whole_but({0: LOCAL, index: element})
    return Decision(forms, [ListOf(element, lst.origin, sizes)])


def _keep_batch_sizes(sizes: Any) -> Any:
    """Return sizes as known outside of a loop's body: `None` for sizes of the body's tensors."""
    if sizes is None or not any(map(batch_axes_in, np.ravel(sizes))):
        return None
    found = np.empty(sizes.shape, object)
    for index, size in np.ndenumerate(sizes):
        if all(isinstance(symbol, BatchAxis) for symbol in symbols_in(size)):
            found[index] = size
        elif not isinstance(size.only_symbol(), AxisSize):
            return None
    return found


def _fill_with_elements(sizes: Any, tensor: Any) -> Any:
    found = sizes.copy()
    for place, index in enumerate(np.ndindex(sizes.shape)):
        if sizes[index] is None:
            found[index] = as_size(Element(tensor, place, is_size=True))
    return found


def equal_sizes(sizes: Any, others: Any) -> bool:
    """Whether the known sizes of two elements are equal."""
    if sizes is None or others is None:
        return sizes is others
    if sizes.shape != others.shape:
        return False
    pairs = zip(np.ravel(sizes), np.ravel(others), strict=True)
    return all(size == other for size, other in pairs)


@rule("TensorListGetItem", "TensorListStack", "TensorListPopBack")
def take_element(op: Operation) -> Decision | None:
    """Take an element, or stack all elements."""
    lst = _find_list(op)
    if lst is None:
        return None
    element = lst.element or REPLICATE
    is_stack = op.type == "TensorListStack"
    out = element.on_axis(element.axis + is_stack) if isinstance(element, Shard) else element
    output = op.outputs[1] if op.type == "TensorListPopBack" else op.outputs[0]
    # All further operations may read elements that are not set: they are zeros.
    if lst.sizes is not None and op.type == "TensorListPopBack":
        op.set_sizes(output, _fill_with_elements(lst.sizes, output))
    shape_at = 2 if op.type == "TensorListGetItem" else 1

    def take_local_element(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        inputs = list(inputs)
        if isinstance(element, Shard):
            sizes = stage.plan.sizes_in(op.inputs[shape_at])
            inputs[shape_at] = _open_local_shape(element, sizes, inputs[shape_at].dtype)
        return stage.copy_operation(op, inputs)

    results = [lst, out] if op.type == "TensorListPopBack" else [out]
    return Decision(op.whole_but({0: LOCAL}), results, take_local_element)


@rule("TensorListLength")
def list_length(op: Operation) -> Decision | None:
    """Count the elements."""
    return Decision([LOCAL], [REPLICATE]) if _find_list(op) else None


@rule("TensorListElementShape")
def element_shape(op: Operation) -> Decision | None:
    """Give the shape of the whole batch's elements."""
    lst = _find_list(op)
    if lst is None:
        return None
    element = lst.element
    if not isinstance(element, Shard):
        return Decision([LOCAL], [REPLICATE])
    if op.outputs[0].shape.rank != 1 or op.outputs[0].shape[0] is None:
        raise ComputeWholeError({lst.origin})
    count = op.outputs[0].shape[0]

    def write_global_shape(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        (local,) = stage.copy_operation(op, inputs)
        total = stage.write_size(element.rows.total, local.dtype)
        return [tf.where([axis == element.axis for axis in range(count)], total, local)]

    sizes = np.empty(count, object)
    for index in range(count):
        is_rows = index == element.axis
        sizes[index] = element.rows.total if is_rows else as_size(Element(op.outputs[0], index))
    op.set_sizes(op.outputs[0], sizes)
    return Decision([LOCAL], [REPLICATE], write_global_shape, needs=[element.rows])


@rule("TensorListResize")
def resize_list(op: Operation) -> Decision | None:
    """Change the number of elements."""
    return Decision([LOCAL, REPLICATE], [op.placements[0]]) if _find_list(op) else None


@rule("OptionalNone")
def no_value(op: Operation) -> Decision | None:
    """Make an optional without a value."""
    return Decision([], [ListOf(None, op.op)])


@rule("OptionalFromValue")
def optional_from_value(op: Operation) -> Decision | None:
    """Make an optional of a tensor; each replica's optional has its local value."""
    if len(op.inputs) != 1:
        return None
    (placement,) = op.placements
    sizes = op.sizes_in(0)
    # Only symbols of the step's inputs have a meaning outside of the branch.
    symbols = [symbol for size in np.ravel(sizes) for symbol in symbols_in(size)]
    if any(not isinstance(symbol, BatchAxis) or symbol.source is not None for symbol in symbols):
        sizes = None
    return Decision([LOCAL], [ListOf(placement.as_plain(), op.op, sizes)])


@rule("OptionalGetValue")
def optional_value(op: Operation) -> Decision | None:
    """Return the tensor in an optional."""
    found = _find_list(op)
    if found is None or found.element is None or len(op.outputs) != 1:
        return None
    element = found.element
    if found.sizes is not None:
        op.set_sizes(op.outputs[0], found.sizes)

    def take_local_value(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        (output,) = op.outputs
        shape = shapes_attribute([local_shape(output.shape, element)])
        attributes = {**op.node_def.attr, "output_shapes": shape}
        return list(stage.create_operation(op, inputs, [output.dtype], attributes).outputs)

    return Decision([LOCAL], [element], take_local_value)
