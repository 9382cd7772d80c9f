"""LSTM and GRU of cuDNN, which Keras uses on GPUs; Keras's own loops are in `control_flow.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from ..empty_inputs import pad_to_one_row
from ..operation import Decision, Form, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, Opaque, Placement, Shard
from ..stage import Stage, rows_from

_PARAMETERS, _LENGTHS = 3, 4  # Indices of inputs of both operations.
_KEPT = (11, 12)  # Indices of the gradient's inputs with cuDNN's own values.


@rule("CudnnRNNV3")
def recurrent(op: Operation) -> Decision | None:
    """Compute a replica's samples; cuDNN's own values for the gradient stay on the replica."""
    axes = _find_sample_axes(op)
    shards = [(op.shard(index), axis) for index, axis in axes.items()]
    main = next((shard for shard, axis in shards if shard and shard.axis == axis), None)
    if main is None or op.attr("dropout") > 0:  # cuDNN draws the dropout.
        return None
    kept = Opaque(op.op, main.rows)
    return _divide_samples(op, axes, main, [kept, kept])


@rule("CudnnRNNBackpropV3")
def recurrent_gradient(op: Operation) -> Decision | None:
    """Compute the gradient of a replica's samples, and its part of the parameters' gradient."""
    axes = _find_sample_axes(op)
    kept = op.placements[_KEPT[0]]
    if not axes or not isinstance(kept, Opaque) or op.placements[_KEPT[1]] != kept:
        return None
    return _divide_samples(op, axes, Shard(axes[0], kept.rows), [PARTIAL])


def _find_sample_axes(op: Operation) -> dict[int, int]:
    """Return, for each input with samples, the axis of the samples; empty if a rank is unknown."""
    batch = int(op.attr("time_major"))
    places = [i for i in range(len(op.inputs)) if i != _PARAMETERS and i not in _KEPT]
    if any(op.rank(index) is None for index in places):
        return {}
    # The memory cell of a GRU is a scalar without a meaning.
    return {i: 0 if i == _LENGTHS else batch for i in places if op.rank(i)}


def _divide_samples(
    op: Operation, axes: Mapping[int, int], main: Shard, others: Sequence[Placement]
) -> Decision:
    """Compute a replica's samples; the first three results and the inputs in `axes` have samples.

    cuDNN fails without samples, so a replica without samples computes a sample of zeros.
    """
    forms: list[Form] = [p if isinstance(p, Opaque) else REPLICATE for p in op.placements]
    for index, axis in axes.items():
        forms[index] = op.rows_form(index, Shard(axis, main.rows))
    out: list[Placement] = [
        Shard(axes[0], main.rows) if output.shape.rank else REPLICATE for output in op.outputs[:3]
    ]

    def compute_samples(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        count = tf.shape(inputs[0])[axes[0]]
        given = list(inputs)
        for index, axis in axes.items():
            rank, value = op.inputs[index].shape.rank, int(index == _LENGTHS)
            given[index] = pad_to_one_row(inputs[index], axis, rank, count, value)
        results = stage.copy_operation(op, given)
        samples = [
            rows_from(result, axes[0], 0, count) if result.shape.rank else tf.zeros_like(result)
            for result in results[:3]
        ]
        return [*samples, *results[3:]]

    return Decision(forms, [*out, *others], compute_samples)
