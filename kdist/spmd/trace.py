"""Trace a step as the program of one device that sees the global batch.

`plan.live_operations` lists the operations of the traced graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from .._upstream.one_device_tracing import one_device
from .functions import TracedGraph


@dataclass
class InputTensor:
    """A tensor that a step is called with.

    Args:
        parts: The replicas' values.
        is_rows: Whether the values are parts of a batch, divided along the first axis.
        replicas: The number of parts, over all workers, if all workers' parts have the sizes of the
            parts here; `None` if the sizes may differ.
        total: The batch's number of rows, if it is known without the parts.
        counts: The numbers of rows of all parts, if the rows are counted already.
    """

    parts: Sequence[tf.Tensor]
    is_rows: bool
    replicas: int | None = 1
    total: int | None = None
    counts: tf.Tensor | None = None


@dataclass
class Trace:
    """A traced step: placeholders with the tensors that they stand for, and the results.

    The results are a flat list, with `None` for results that are `None`, and their structure.
    """

    graph: TracedGraph
    inputs: list[tuple[tf.Tensor, InputTensor]]
    outputs: list[tf.Tensor | None]
    structure: Any


def trace_step(
    strategy: Any,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    input_tensor_of: Callable[[Any], InputTensor | list[InputTensor] | None],
) -> Trace:
    """Trace a step for the whole batch, with arguments as `tf.distribute.Strategy.run` gets them.

    `input_tensor_of` is called with each value in the arguments, and returns the replicas' tensors,
    a list for the components of a sparse or ragged tensor; `None` passes the value on unchanged.
    """
    graph = TracedGraph("kdist_global_step")
    inputs: list[tuple[tf.Tensor, InputTensor]] = []

    def make_placeholder(value: Any, tensors: InputTensor | list[InputTensor] | None) -> Any:
        if tensors is None:
            return value
        if isinstance(tensors, list):
            components = [make_placeholder(None, component) for component in tensors]
            return tf.nest.pack_sequence_as(value, components, expand_composites=True)
        tensor = tf.compat.v1.placeholder(tensors.parts[0].dtype, _global_shape(tensors))
        inputs.append((tensor, tensors))
        return tensor

    given = [(value, input_tensor_of(value)) for value in tf.nest.flatten((args, kwargs))]
    with graph.as_default():
        flat = [make_placeholder(value, tensors) for value, tensors in given]
        args, kwargs = tf.nest.pack_sequence_as((args, kwargs), flat)
        with (
            one_device(strategy, divides=True),
            auto_control_deps.AutomaticControlDependencies() as control,
        ):
            structure = fn(*args, **kwargs)
            outputs = [
                None if result is None else control.mark_as_return(tf.convert_to_tensor(result))
                for result in tf.nest.flatten(structure, expand_composites=True)
            ]
    return Trace(graph, inputs, outputs, structure)


def _global_shape(input_tensor: InputTensor) -> Any:
    shapes = [part.shape for part in input_tensor.parts]
    if not input_tensor.is_rows:
        return shapes[0]
    first = [shape[0] for shape in shapes]
    total = input_tensor.total
    if total is None and None not in first:
        if input_tensor.replicas == len(first):
            total = sum(first)
        elif input_tensor.replicas is not None and len({*first}) == 1:
            total = first[0] * input_tensor.replicas
    common = functools.reduce(tf.TensorShape.most_specific_compatible_shape, shapes)
    return [total, *common[1:]]
