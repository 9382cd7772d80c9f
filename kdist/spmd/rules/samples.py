"""Operations on single samples, with gradients: convolutions, pooling, images, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..empty_inputs import fails_without_rows, pad_empty_inputs, padded_key
from ..op_types import types_in
from ..operation import LOCAL, Decision, Operation, Tensors, local_size, rule
from ..placements import PARTIAL, REPLICATE
from ..stage import Stage
from .elementwise import name_axes

# Inputs with the samples along their first axis; inputs that are shapes of tensors with samples.
_ROWS: dict[str, tuple[list[int], list[int]]] = {
    **dict.fromkeys(
        types_in("""
            AdjustContrastv2 AdjustHue AdjustSaturation AvgPool AvgPool3D BiasAdd Conv2D Conv3D
            DepthToSpace DepthwiseConv2dNative Dilation2D ExtractImagePatches HSVToRGB
            ImageProjectiveTransformV3 LRN MaxPool MaxPool3D RGBToHSV ResizeArea ResizeBicubic
            ResizeBilinear ResizeNearestNeighbor ResizeNearestNeighborGrad ScaleAndTranslate
            SpaceToDepth
        """),
        ([0], []),
    ),
    **dict.fromkeys(
        types_in("""
            CombinedNonMaxSuppression InTopKV2 ResizeBicubicGrad ResizeBilinearGrad
            ScaleAndTranslateGrad SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
        """),
        ([0, 1], []),
    ),
    **dict.fromkeys(
        types_in("LRNGrad MaxPool3DGrad MaxPoolGrad MaxPoolGradGrad"),
        ([0, 1, 2], []),
    ),
    **dict.fromkeys(types_in("AvgPool3DGrad AvgPoolGrad"), ([1], [0])),
    **dict.fromkeys(
        types_in("""
            Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput
        """),
        ([2], [0]),
    ),
    "Dilation2DBackpropInput": ([0, 2], []),
}
# The least rank of a batch of samples; a tensor of a smaller rank is a single sample.
_LEAST_RANKS = {
    **dict.fromkeys(types_in("AdjustHue AdjustSaturation HSVToRGB RGBToHSV"), 2),
    "AdjustContrastv2": 4,
}
# Kernels that may be wrong without rows (`empty_inputs.fails_without_rows`).
_NEED_ROWS = types_in("""
    BiasAdd Conv2D Conv3D DepthwiseConv2dNative MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad
""")
# Inputs that may have a single row for all samples.
_SINGLE_ROWS = {"ImageProjectiveTransformV3": [1]}
# Inputs with samples that are summed over.
_SUMMED = {
    "BiasAddGrad": [0],
    "Conv2DBackpropFilter": [0, 2],
    "Conv3DBackpropFilterV2": [0, 2],
    "DepthwiseConv2dNativeBackpropFilter": [0, 2],
}
# Numbers of last axes that belong to a sample, for each input with samples.
_BATCHED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(types_in("FFT IFFT IRFFT LogSoftmax MatrixDiagV3 RFFT Softmax TopKV2"), (1,)),
    **dict.fromkeys(
        types_in("""
            Cholesky FFT2D IFFT2D LogMatrixDeterminant Lu MatrixBandPart MatrixDeterminant
            MatrixDiagPartV3 MatrixInverse Qr SelfAdjointEigV2 Svd
        """),
        (2,),
    ),
    **dict.fromkeys(types_in("FFT3D IFFT3D"), (3,)),
    **dict.fromkeys(types_in("Cross LowerBound UpperBound"), (1, 1)),
    **dict.fromkeys(types_in("CholeskyGrad MatrixSolve MatrixTriangularSolve"), (2, 2)),
    "MatrixSetDiagV3": (2, 1),
}


@rule(*_ROWS)
def compute_samples_alone(op: Operation) -> Decision | None:
    """Compute a replica's samples."""
    data, shapes = _ROWS[op.type]
    main = op.first_shard(data)
    if main is None or main.axis != 0:
        return None
    for index in shapes:
        sizes = op.sizes_in(index)
        if sizes is None or not main.rows.is_total(sizes[0]):
            return None
    if (op.rank(data[0]) or 0) < _LEAST_RANKS.get(op.type, 1):
        return None
    if op.type == "SoftmaxCrossEntropyWithLogits" and 1 in (t.shape[0] for t in op.inputs):
        return None  # TensorFlow would infer a single row for the result, too.
    shared = main.as_plain()
    if op.type == "SoftmaxCrossEntropyWithLogits":
        name_axes(op, op.outputs[1], ["01", "01"], "01", shared)
    elif op.type == "SparseSoftmaxCrossEntropyWithLogits":
        op.complete_dims(op.outputs[1], op.dims(0))
    single = _SINGLE_ROWS.get(op.type, [])
    forms = {
        index: op.rows_form(index, shared, may_broadcast=index in single)
        for index in (*data, *single)
    }
    forms |= dict.fromkeys(shapes, local_size(0, main.rows))
    compute_some_rows = None
    if op.type in _NEED_ROWS and op.rank(data[0]) != 2:

        def compute_some_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
            return _compute_some_rows(stage, op, inputs, data)

    return Decision(op.whole_but(forms), [shared] * len(op.outputs), compute_some_rows)


def _compute_some_rows(
    stage: Stage, op: Any, inputs: Sequence[Any], data: list[int]
) -> Sequence[Any]:
    """Compute from a row of zeros if there are no rows, and remove the row from the result."""
    if not fails_without_rows(stage, op):
        return stage.copy_operation(op, inputs)
    (made,) = stage.copy_operation(op, pad_empty_inputs(stage, op, inputs, data))
    result = made[: tf.shape(inputs[data[0]])[0]]
    # Later operations need the padded result: the gradient of a pooling takes oneDNN's own form of
    # the result, and oneDNN adds a bias within the convolution.
    stage.make_once(padded_key(result), lambda: made)
    return [result]


@rule(*_SUMMED)
def sums_of_samples(op: Operation) -> Decision | None:
    """Sum over a replica's samples."""
    data = _SUMMED[op.type]
    main = op.first_shard(data)
    if main is None or main.axis != 0:
        return None
    forms = op.whole_but({index: op.rows_form(index, main) for index in data})
    sum_some_rows = None
    # Without rows, these kernels do not write their result.
    if (op.rank(data[0]) or 0) > 2:

        def sum_some_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
            if fails_without_rows(stage, op):
                inputs = pad_empty_inputs(stage, op, inputs, data)
            return stage.copy_operation(op, inputs)

    return Decision(forms, [PARTIAL], sum_some_rows)


@rule(*_BATCHED)
def batches_of_matrices(op: Operation) -> Decision | None:
    """Compute vectors or matrices, or pairs of them, each of a single sample."""
    inner, data = _BATCHED[op.type], range(len(_BATCHED[op.type]))
    main, ranks = op.first_shard(data), [op.rank(index) for index in data]
    if main is None or None in ranks:
        return None
    batches = {rank - own for rank, own in zip(ranks, inner, strict=True) if rank is not None}
    if len(batches) > 1 or main.axis >= min(batches):
        return None
    if op.type == "MatrixDiagV3" and op.outputs[0].shape.rank != (op.rank(0) or 0) + 1:
        return None  # Several diagonals have an axis of their own.
    if op.type in ("LogSoftmax", "Softmax"):
        op.complete_dims(op.outputs[0], op.dims(0))
    if any(op.shard(index) is not None for index in range(len(data), len(op.inputs))):
        return None
    broadcasts = op.type == "MatrixTriangularSolve"
    forms = {index: op.rows_form(index, main, may_broadcast=broadcasts) for index in data}
    return Decision(op.whole_but(forms), [main.as_plain()] * len(op.outputs))


@rule("ReverseSequence")
def reverse_sequences(op: Operation) -> Decision | None:
    """Reverse the first steps of each sample, as many as its length."""
    batch = op.attr("batch_dim")
    lengths = op.shard(1)
    main = op.shard(0) or (None if lengths is None else lengths.on_axis(batch))
    if main is None or main.axis == op.attr("seq_dim"):
        return None
    of_lengths = op.rows_form(1, main.on_axis(0)) if main.axis == batch else REPLICATE
    return Decision([op.rows_form(0, main), of_lengths], [main.as_plain()])


@rule("FusedBatchNormV3")
def normalize(op: Operation) -> Decision | None:
    """Normalize samples by given moments."""
    shard = op.shard(0)
    if shard is None or shard.axis or op.attr("is_training") or any(map(op.shard, range(1, 5))):
        return None
    results = [shard.as_plain(), *[REPLICATE] * (len(op.outputs) - 1)]
    return Decision(op.whole_but({0: LOCAL}), results)
