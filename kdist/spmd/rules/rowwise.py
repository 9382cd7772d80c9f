"""Operations on single samples, with gradients: convolutions, pooling, images, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..empty_inputs import fails_without_rows, pad_empty_inputs, padded_key
from ..op_types import types_in
from ..operation import LOCAL, Decision, Operation, Rewrite, Tensors, local_size, rule
from ..placements import PARTIAL, REPLICATE, Shard
from ..rows import Rows
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
    # The gradient of a pooling takes oneDNN's own form of the pooling's result, and a bias is
    # added within the convolution.
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


@rule(*_BATCHED.keys() - {"MatrixDiagV3", "MatrixSetDiagV3"})
def batches_of_matrices(op: Operation) -> Decision | None:
    """Compute vectors or matrices, or pairs of them, each of a single sample."""
    inner, data = _BATCHED[op.type], range(len(_BATCHED[op.type]))
    main, ranks = op.first_shard(data), [op.rank(index) for index in data]
    if main is None or None in ranks:
        return None
    batches = {rank - own for rank, own in zip(ranks, inner, strict=True) if rank is not None}
    if len(batches) > 1 or main.axis >= min(batches):
        return None
    if op.type in ("LogSoftmax", "Softmax"):
        op.complete_dims(op.outputs[0], op.dims(0))
    if any(op.shard(index) is not None for index in range(len(data), len(op.inputs))):
        return None
    broadcasts = op.type == "MatrixTriangularSolve"
    forms = {index: op.rows_form(index, main, may_broadcast=broadcasts) for index in data}
    return Decision(op.whole_but(forms), [main.as_plain()] * len(op.outputs))


@rule("MatrixSetDiagV3")
def set_diagonals(op: Operation) -> Decision | Rewrite | None:
    """Set the diagonals of samples' matrices, or the diagonal of a matrix divided by rows."""
    if op.rank(0) != 2 or op.rank(1) != 1:
        return batches_of_matrices(op)
    main, dims = op.first_shard([0, 1]), op.dims(0)
    if main is None or main.axis or dims is None or op.constant(2) != 0:
        return None
    values = op.dims(1)
    if values is None or dims[0] != main.rows.total or values[0] != dims[0]:
        return None  # The diagonal has no value for each row.
    matrix, diagonal, _ = op.op.inputs
    return Rewrite(lambda: _set_diagonal(op, matrix, diagonal, tf.raw_ops.Shape(input=matrix)))


@rule("MatrixDiagV3")
def make_diagonals(op: Operation) -> Decision | Rewrite | None:
    """Make matrices of samples' diagonals, or a matrix of a batch's values, divided by rows."""
    if op.rank(0) != 1:
        # Several diagonals have an axis of their own.
        is_one = op.constant(1) is not None and np.size(op.constant(1)) == 1
        return batches_of_matrices(op) if is_one else None
    if not op.any_shard or [op.constant(index) for index in (1, 2, 3)] != [0, -1, -1]:
        return None
    diagonal, padding = op.op.inputs[0], op.op.inputs[4]
    return Rewrite(lambda: _set_diagonal(op, padding, diagonal, tf.raw_ops.Shape(input=diagonal)))


def _set_diagonal(op: Operation, matrix: Any, diagonal: Any, shape: Any) -> list[tf.Tensor]:
    """Set the diagonal by operations with rules: the division follows."""
    rows, columns = shape[0], shape[-1]
    is_diagonal = tf.one_hot(tf.range(rows), columns, True, False, dtype=tf.bool)
    made = tf.where(is_diagonal, diagonal[:, None], matrix)
    made.set_shape(op.outputs[0].shape)
    return [made]


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


@rule("MaxPoolWithArgmax", "MaxPoolGradWithArgmax")
def pool_with_places(op: Operation) -> Decision | None:
    """Pool a replica's samples, with the places of the largest values; or compute the gradient.

    With `include_batch_in_index`, a place also counts the values of all earlier samples.
    """
    data = range(len(op.inputs))
    main = op.first_shard(data)
    of_batch = op.attr("include_batch_in_index")
    if main is None or main.axis or (of_batch and len(main.rows.segments) != 1):
        return None
    shared = main.as_plain()
    forms = [op.rows_form(index, shared) for index in data]

    def count_earlier(stage: Stage, sample: Any, dtype: Any) -> Any:
        ((_, first),) = stage.row_blocks(shared.rows, dtype)
        return first * tf.reduce_prod(tf.shape(sample, dtype)[1:])

    def pool_local_samples(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        given = list(inputs)
        if of_batch and len(given) == 3:
            given[2] = given[2] - count_earlier(stage, given[0], given[2].dtype)
        results = stage.copy_operation(op, pad_empty_inputs(stage, op, given, list(data)))
        results = [result[: tf.shape(inputs[0])[0]] for result in results]
        if of_batch and len(results) == 2:
            results[1] = results[1] + count_earlier(stage, inputs[0], results[1].dtype)
        return results

    return Decision(forms, [shared] * len(op.outputs), pool_local_samples, needs=[shared.rows])


# The index of the images, or of their shape, among the inputs; the indices of the boxes' inputs.
_CROPS = {
    "CropAndResize": (0, [1, 2]),
    "CropAndResizeGradBoxes": (1, [0, 2, 3]),
    "CropAndResizeGradImage": (3, [0, 1, 2]),
}


@rule(*_CROPS)
def crop_boxes(op: Operation) -> Decision | None:
    """Crop boxes from all images, or from images on the same replica; or compute the gradients."""
    image, boxes = _CROPS[op.type]
    main = op.first_shard(boxes)
    if main is None or main.axis:
        return None
    forms = op.whole_but({index: op.rows_form(index, main) for index in boxes})
    images = _find_own_images(op, image, boxes[-1])
    of_images = op.type == "CropAndResizeGradImage"
    if images is None:
        return Decision(forms, [PARTIAL if of_images else main.as_plain()])
    if not of_images:
        forms[image] = LOCAL

    def crop_local_images(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        ((count, first),) = stage.row_blocks(images, tf.int32)
        given = list(inputs)
        given[boxes[-1]] = given[boxes[-1]] - first
        if of_images:
            given[image] = tf.concat([[count], given[image][1:]], 0)
        return stage.copy_operation(op, given)

    out = Shard(0, images) if of_images else main.as_plain()
    return Decision(forms, [out], crop_local_images, needs=[images])


def _find_own_images(op: Operation, image: int, index: int) -> Rows | None:
    """Return the rows of images, if each box is on the replica that has its image."""
    places = op.shard(index)
    rows = None if places is None else places.within
    if rows is None or len(rows.segments) != 1:
        return None
    if op.type == "CropAndResizeGradImage":
        sizes = op.sizes_in(image)
        return rows if sizes is not None and rows.is_total(sizes[0]) else None
    shard = op.shard(image)
    return rows if shard is not None and not shard.axis and shard.rows == rows else None
