"""Trace a step as the program of one device that sees the global batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from .._upstream.steps import one_device
from .functions import TracedGraph


@dataclass
class Leaf:
    """A tensor that a step is called with.

    Args:
        parts: What each replica has.
        is_rows: Whether these are parts of a batch, divided along the first axis.
        replicas: How many parts of equal sizes the batch has, if sizes are known, those of other
            workers too; `None` if these may be of other sizes.
        total: The number of its rows, if it is known otherwise than from the parts.
        counts: The numbers of rows of all parts, if they were counted already.
    """

    parts: Sequence[Any]
    is_rows: bool
    replicas: int | None = 1
    total: int | None = None
    counts: Any = None


@dataclass
class Trace:
    """A traced step.

    Args:
        graph: Its operations.
        inputs: Placeholders, and what they stand for.
        outputs: Its results, flat; `None`s stay.
        structure: What the step returned.
    """

    graph: Any
    inputs: list[tuple[Any, Leaf]]
    outputs: list[Any]
    structure: Any


def trace(
    strategy: Any,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    leaf_of: Callable[[Any], Leaf | list[Leaf] | None],
) -> Trace:
    """Trace a step for the whole batch.

    Args:
        strategy: The strategy whose replicas will run it.
        fn: The step.
        args: Its arguments, as `tf.distribute.Strategy.run` gets them.
        kwargs: The same, by name.
        leaf_of: Says for each leaf of the arguments which tensors the replicas have, a list for the
            components of a sparse or ragged one; `None` passes it on as it is.
    """
    graph = TracedGraph("kdist_global_step")
    inputs: list[tuple[Any, Leaf]] = []

    def place(value: Any, leaf: Leaf | list[Leaf] | None) -> Any:
        if leaf is None:
            return value
        if isinstance(leaf, list):
            components = [place(None, one) for one in leaf]
            return tf.nest.pack_sequence_as(value, components, expand_composites=True)
        first = leaf.parts[0]
        made = tf.compat.v1.placeholder(first.dtype, _global_shape(leaf))
        inputs.append((made, leaf))
        return made

    given = [(value, leaf_of(value)) for value in tf.nest.flatten((args, kwargs))]
    with graph.as_default():
        flat = [place(value, leaf) for value, leaf in given]
        args, kwargs = tf.nest.pack_sequence_as((args, kwargs), flat)
        with (
            one_device(strategy, divides=True),
            auto_control_deps.AutomaticControlDependencies() as control,
        ):
            structure = fn(*args, **kwargs)
            outputs = [
                None if one is None else control.mark_as_return(tf.convert_to_tensor(one))
                for one in tf.nest.flatten(structure, expand_composites=True)
            ]
    return Trace(graph, inputs, outputs, structure)


def _global_shape(leaf: Leaf) -> Any:
    shapes = [part.shape for part in leaf.parts]
    if not leaf.is_rows:
        return shapes[0]
    first = [shape[0] for shape in shapes]
    total = leaf.total
    if total is None and None not in first:
        if leaf.replicas == len(first):
            total = sum(first)
        elif leaf.replicas is not None and len({*first}) == 1:
            total = first[0] * leaf.replicas
    rest = list(shapes[0][1:])
    for shape in shapes[1:]:
        rest = [a if a == b else None for a, b in zip(rest, shape[1:], strict=True)]
    return [total, *rest]
