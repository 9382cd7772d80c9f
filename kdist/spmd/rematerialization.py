"""Exact rematerialization: the backward pass computes operations of the forward pass again.

`keras.remat` and `keras.RematScope` keep the inputs of a function for its gradient, and free all
values between. TensorFlow's `tf.recompute_grad` calls the function a second time: the second call
draws other random numbers and changes variables again, and in a graph it takes no keyword
arguments. Here the function is called once, and its operations are copied:

- Operations without a state are computed again. A stateless draw gives the same numbers.
- Values of operations with a state, such as reads of variables, are kept.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional
from tensorflow.python.eager import record
from tensorflow.python.framework import ops

from .functions import copy_operation

Operations = dict[tf.Operation, None]
"""Operations, in the order in which they were made."""
_thread = threading.local()
# Attributes in which Keras keeps tensors beside a result.
_TENSOR_ATTRIBUTES = ("_keras_logits", "_keras_mask")


def rematerialize(fn: Callable[..., Any], *, keeps_weights: bool) -> Callable[..., Any]:
    """Return a function with the results of `fn`, whose gradient computes `fn` again.

    Inside `fn`, and outside of a graph, functions are called as they are. So is a whole model: its
    backward pass would keep the values of all layers at once. Instead, each of its layers is
    computed again on its own.

    With `keeps_weights`, values that follow from variables alone, such as casts of weights, are
    kept for the gradient: a replica has only its part of divided weights.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if (
            tf.executing_eagerly()
            or is_rematerialized()
            or _is_model(getattr(fn, "__self__", None))
        ):
            return fn(*args, **kwargs)
        graph = ops.get_default_graph()
        before = len(graph.get_operations())
        with _mark_inside():
            results = fn(*args, **kwargs)
        operations = dict.fromkeys(graph.get_operations()[before:])
        if keeps_weights:
            kept = _find_weight_operations(operations)
            operations = dict.fromkeys(op for op in operations if op not in kept)
        return _separate_results(
            results, _find_added_losses(getattr(fn, "__self__", None), operations), operations
        )

    return call


def _is_model(owner: Any) -> bool:
    """Whether the owner of a method is a model of layers, or a compiled model."""
    made_of_layers = isinstance(owner, keras.Sequential | Functional)
    return made_of_layers or (isinstance(owner, keras.Model) and owner.compiled)


@contextlib.contextmanager
def _mark_inside() -> Iterator[None]:
    _thread.is_inside = True
    try:
        yield
    finally:
        _thread.is_inside = False


def is_rematerialized() -> bool:
    """Whether this thread traces a function that is computed again in the backward pass."""
    return getattr(_thread, "is_inside", False)


def _find_added_losses(owner: Any, operations: Operations) -> list[tuple[list[Any], int]]:
    """Return the places of losses that layers have added inside a method of a layer."""
    layers = owner._flatten_layers() if isinstance(owner, keras.Layer) else ()
    return [
        (layer._losses, index)
        for layer in layers
        for index, loss in enumerate(layer._losses)
        if tf.is_tensor(loss) and loss.op in operations
    ]


def _separate_results(
    results: Any, losses: Sequence[tuple[list[Any], int]], operations: Operations
) -> Any:
    """Return the results as new tensors, whose gradient computes `operations` again.

    Added losses and tensors that Keras keeps beside a result are replaced, too.
    """
    flat = tf.nest.flatten(results, expand_composites=True)
    beside = [
        (tensor, name, getattr(tensor, name))
        for tensor in filter(tf.is_tensor, flat)
        for name in _TENSOR_ATTRIBUTES
        if tf.is_tensor(getattr(tensor, name, None))
    ]
    added = [added_losses[index] for added_losses, index in losses]
    all_results = [*flat, *added, *(value for _, _, value in beside)]
    found = {tensor.ref(): tensor for tensor in all_results if tf.is_tensor(tensor)}
    copied = _find_stateless(found.values(), operations)
    sources = [t for t in found.values() if t.op in copied and t.dtype.is_floating]
    inputs = _outer_inputs(copied)
    if not sources or not inputs:
        return results
    with record.stop_recording():
        separate = {t.ref(): tf.identity(t) for t in sources}

    def gradient(*gradients: Any) -> list[Any]:
        return _recompute_gradient(copied, inputs, sources, gradients)

    record.record_operation("Rematerialized", list(separate.values()), inputs, gradient)
    for tensor, name, value in beside:
        setattr(separate.get(tensor.ref(), tensor), name, separate.get(value.ref(), value))
    for added_losses, index in losses:
        loss = added_losses[index]
        added_losses[index] = separate.get(loss.ref(), loss)
    flat = [separate.get(t.ref(), t) if tf.is_tensor(t) else t for t in flat]
    return tf.nest.pack_sequence_as(results, flat, expand_composites=True)


def _find_weight_operations(operations: Operations) -> Operations:
    """Return the operations whose results follow from variables and constants alone."""
    found: Operations = {}
    for op in operations:
        is_known = all(
            tensor.op in found or tensor.op.type in ("Const", "ReadVariableOp")
            for tensor in op.inputs
        )
        if op.inputs and is_known and not op.op_def.is_stateful:
            found[op] = None
    return found


def _find_stateless(results: Iterable[tf.Tensor], operations: Operations) -> Operations:
    """Return the operations that are computed again for results, in order.

    Operations with a state are left out, and operations that only an operation with a state needs.
    """
    found: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in results]
    while waiting:
        op = waiting.pop()
        if op in operations and op not in found and not op.op_def.is_stateful and op.inputs:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return dict.fromkeys(op for op in operations if op in found)


def _outer_inputs(operations: Operations) -> list[tf.Tensor]:
    """Return the tensors that operations get from elsewhere, without constants."""
    given = {t.ref(): t for op in operations for t in op.inputs if t.op not in operations}
    return [tensor for tensor in given.values() if tensor.op.type != "Const"]


def _recompute_gradient(
    operations: Operations,
    inputs: Sequence[tf.Tensor],
    results: Sequence[tf.Tensor],
    gradients: Sequence[Any],
) -> list[Any]:
    """Return the gradients of inputs, from operations that are computed again.

    If an outer tape records this gradient, the operations are not computed again: the tape has
    recorded the original operations.
    """
    copies: dict[Any, tf.Tensor] = {}
    if not record.could_possibly_record():
        copies = _compute_again(operations, inputs, gradients)
    sources = [copies.get(tensor.ref(), tensor) for tensor in inputs]
    input_gradients: list[Any] = tf.gradients(
        [copies.get(tensor.ref(), tensor) for tensor in results],
        sources,
        list(gradients),
        stop_gradients=sources,  # Outside, an input may depend on another input.
    )
    return input_gradients


def _compute_again(
    operations: Operations, inputs: Sequence[tf.Tensor], gradients: Sequence[Any]
) -> dict[Any, tf.Tensor]:
    """Write copies of operations that wait for the backward pass; return them by their originals.

    TensorFlow's graph optimizer would merge operations that do not wait with their originals.
    """
    graph = ops.get_default_graph()
    copies: dict[Any, tf.Tensor] = {}
    begins = [tf.convert_to_tensor(gradient).op for gradient in gradients]
    with tf.control_dependencies(begins):
        for tensor in inputs:
            if tensor.op.type != "ReadVariableOp":  # The value of a variable is there anyway.
                copies[tensor.ref()] = tf.identity(tensor)
    for op in operations:
        given = [copies.get(tensor.ref(), tensor) for tensor in op.inputs]
        is_waiting = any(tensor.ref() in copies for tensor in op.inputs)
        with tf.control_dependencies([] if is_waiting else begins):
            copy = copy_operation(graph, op, given)
        for output, copied in zip(op.outputs, copy.outputs, strict=True):
            copied.set_shape(output.shape)  # Python code may have set the shape.
            copies[output.ref()] = copied
    return copies
