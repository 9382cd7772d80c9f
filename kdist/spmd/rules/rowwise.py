"""Operations that compute each sample on its own: convolutions, pooling, images, linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..placements import AS_IS, PARTIAL, REPLICATE, Shard, local
from ..plan import Decision, Operation
from .registry import rule

# Inputs whose first axis has the samples; inputs that are shapes, of which it is the first element.
_ROWS: dict[str, tuple[list[int], list[int]]] = {
    "AdjustContrastv2": ([0], []),
    "AvgPool": ([0], []),
    "AvgPool3D": ([0], []),
    "AvgPool3DGrad": ([1], [0]),
    "AvgPoolGrad": ([1], [0]),
    "BiasAdd": ([0], []),
    "Conv2D": ([0], []),
    "Conv2DBackpropInput": ([2], [0]),
    "Conv3D": ([0], []),
    "Conv3DBackpropInputV2": ([2], [0]),
    "DepthToSpace": ([0], []),
    "DepthwiseConv2dNative": ([0], []),
    "DepthwiseConv2dNativeBackpropInput": ([2], [0]),
    "Dilation2D": ([0], []),
    "ExtractImagePatches": ([0], []),
    "HSVToRGB": ([0], []),
    "ImageProjectiveTransformV3": ([0], []),
    "InTopKV2": ([0, 1], []),
    "LRN": ([0], []),
    "LRNGrad": ([0, 1, 2], []),
    "MaxPool": ([0], []),
    "MaxPool3D": ([0], []),
    "MaxPool3DGrad": ([0, 1, 2], []),
    "MaxPoolGrad": ([0, 1, 2], []),
    "MaxPoolGradGrad": ([0, 1, 2], []),
    "RGBToHSV": ([0], []),
    "ResizeBicubic": ([0], []),
    "ResizeBicubicGrad": ([0, 1], []),
    "ResizeBilinear": ([0], []),
    "ResizeBilinearGrad": ([0, 1], []),
    "ResizeNearestNeighbor": ([0], []),
    "ResizeNearestNeighborGrad": ([0], []),
    "SoftmaxCrossEntropyWithLogits": ([0, 1], []),
    "SpaceToDepth": ([0], []),
    "SparseSoftmaxCrossEntropyWithLogits": ([0, 1], []),
}
# Inputs whose samples are summed over.
_SUMMED = {
    "BiasAddGrad": [0],
    "Conv2DBackpropFilter": [0, 2],
    "Conv3DBackpropFilterV2": [0, 2],
    "DepthwiseConv2dNativeBackpropFilter": [0, 2],
}
# Number of last axes that belong to one sample.
_BATCHED = {
    "Cholesky": 2,
    "CholeskyGrad": 2,
    "FFT": 1,
    "FFT2D": 2,
    "FFT3D": 3,
    "IFFT": 1,
    "IFFT2D": 2,
    "IFFT3D": 3,
    "IRFFT": 1,
    "LogMatrixDeterminant": 2,
    "LogSoftmax": 1,
    "Lu": 2,
    "MatrixBandPart": 2,
    "MatrixDeterminant": 2,
    "MatrixDiagPartV3": 2,
    "MatrixDiagV3": 1,
    "MatrixExponential": 2,
    "MatrixInverse": 2,
    "Qr": 2,
    "RFFT": 1,
    "SelfAdjointEigV2": 2,
    "Softmax": 1,
    "Svd": 2,
    "TopKV2": 1,
}
# The same, of two inputs with the same samples.
_BATCHED_PAIRS = {"MatrixSetDiagV3": (2, 1), "MatrixSolve": (2, 2)}


@rule(*_ROWS)
def samples(op: Operation) -> Decision | None:
    """Compute a replica's samples."""
    data, shapes = _ROWS[op.type]
    main = next((op.shard(i) for i in data if op.shard(i) is not None), None)
    if main is None or main.axis != 0:
        return None
    for index in shapes:
        sizes = op.sizes(index)
        if sizes is None or not _are(sizes[0], main):
            return None
    shared = main.plain()
    wants: list[Any] = [REPLICATE] * len(op.inputs)
    for index in data:
        fits = op.fits(op.placements[index], shared)
        wants[index] = op.placements[index] if fits else shared
    for index in shapes:
        wants[index] = local(0, main.rows)
    if op.type == "ImageProjectiveTransformV3" and op.inputs[1].shape[0] != 1:
        wants[1] = op.placements[1] if op.fits(op.placements[1], shared) else shared
    return Decision(wants, [shared] * len(op.outputs))


def _are(size: Any, shard: Shard) -> bool:
    """Whether a size is the number of rows."""
    total = shard.rows.total
    if isinstance(size, int):
        spaces = [space.root() for space, _ in shard.rows.segments]
        return len(spaces) == 1 and spaces[0].total == size and shard.rows.segments[0][1] == 1
    return bool(size == total)


@rule(*_SUMMED)
def sums_of_samples(op: Operation) -> Decision | None:
    """Sum over a replica's samples."""
    data = _SUMMED[op.type]
    main = next((op.shard(i) for i in data if op.shard(i) is not None), None)
    if main is None or main.axis != 0:
        return None
    wants: list[Any] = [REPLICATE] * len(op.inputs)
    for index in data:
        fits = op.fits(op.placements[index], main)
        wants[index] = op.placements[index] if fits else main.plain()
    emit = None
    if op.type.startswith("Depthwise"):  # leaves its result as it finds it if there are no rows

        def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
            made = stage.copy(op, inputs)[0]
            count = stage.local(main.rows, "int32")
            return [tf.where(count > 0, made, tf.zeros_like(made))]

    return Decision(wants, [PARTIAL], emit)


@rule(*_BATCHED)
def batches_of_matrices(op: Operation) -> Decision | None:
    """Compute vectors or matrices, of which each belongs to one sample."""
    shard, rank = op.shard(0), op.rank(0)
    if shard is None or rank is None or shard.axis >= rank - _BATCHED[op.type]:
        return None
    others = any(op.shard(index) is not None for index in range(1, len(op.inputs)))
    if others and op.type != "CholeskyGrad":
        return None
    wants: list[Any] = [AS_IS, *[REPLICATE] * (len(op.inputs) - 1)]
    if op.type == "CholeskyGrad":
        wants = [p if op.fits(p, shard) else shard.plain() for p in op.placements]
    return Decision(wants, [shard.plain()] * len(op.outputs))


@rule(*_BATCHED_PAIRS, "MatrixTriangularSolve")
def pairs_of_matrices(op: Operation) -> Decision | None:
    """Compute pairs of matrices, of which each belongs to one sample."""
    inner = _BATCHED_PAIRS.get(op.type, (2, 2))
    main = op.shard(0) or op.shard(1)
    ranks = [op.rank(0), op.rank(1)]
    if main is None or None in ranks:
        return None
    if any(main.axis >= r - i for r, i in zip(ranks, inner, strict=True)):  # type: ignore[operator]
        return None
    if ranks[0] - inner[0] != ranks[1] - inner[1]:  # type: ignore[operator]
        return None
    if op.type == "MatrixTriangularSolve" and any(t.shape[main.axis] == 1 for t in op.inputs):
        return None
    wants: list[Any] = [p if op.fits(p, main) else main.plain() for p in op.placements[:2]]
    return Decision([*wants, *[REPLICATE] * (len(op.inputs) - 2)], [main.plain()])
