"""Operations that only GPUs have, or that Keras makes on GPUs alone: planned without a GPU."""

import sys
from unittest import mock

import kdist
import keras
import tensorflow as tf
from kdist.spmd import partition
from kdist.spmd.operation import RULES
from kdist.spmd.plan import GraphPlan
from tensorflow.python.distribute import values
from tensorflow.python.framework import kernels

NN = sys.modules["keras.src.backend.tensorflow.nn"]
# Types with kernels for GPUs and none for CPUs, of which Keras makes those that have rules.
GPU_ALONE = {
    "CTCLossV2",  # of sparse labels: Keras has dense ones
    *("CudnnRNN", "CudnnRNNBackprop", "CudnnRNNV2", "CudnnRNNBackpropV2"),
    *("CudnnRNNV3", "CudnnRNNBackpropV3"),
    *("CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2", "CudnnRNNParamsSize"),
    *("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2"),
    *(f"{kind}{rank}" for kind in ("BatchFFT", "BatchIFFT") for rank in ("", "2D", "3D")),
    *("FFTND", "IFFTND", "RFFTND", "IRFFTND"),
    *("GenerateBoundingBoxProposals", "MaxPoolGradGradWithArgmax"),
    *("SparseMatrixAdd", "SparseMatrixMul", "SparseMatrixSoftmax", "SparseMatrixSoftmaxGrad"),
    "SparseMatrixZeros",
    *("NcclAllReduce", "NcclBroadcast", "NcclReduce", "ExperimentalMapDataset"),
}


def test_operations_of_gpus_alone_are_known():
    devices = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        devices.setdefault(kernel.op, set()).add(kernel.device_type)
    alone = {
        op
        for op, types in devices.items()
        if "GPU" in types and not types & {"CPU", "DEFAULT"} and not op.startswith("_")
    }
    assert alone <= GPU_ALONE
    assert set(RULES) & GPU_ALONE == {"CudnnRNNV3", "CudnnRNNBackpropV3"}


def test_channels_first_are_divided(monkeypatch):
    """GPUs have convolutions with channels first; on CPUs Keras transposes their inputs."""
    layers, options = keras.layers, {"data_format": "channels_first"}
    plans = []

    def plan(**given):
        plans.append(GraphPlan(**given))
        return plans[-1]

    def make():
        return keras.Sequential(
            [
                keras.Input((4, 8, 8)),
                layers.Conv2D(4, 3, dilation_rate=2, **options),
                layers.BatchNormalization(axis=1),
                layers.DepthwiseConv2D(2, **options),
                layers.Conv2DTranspose(3, 3, strides=2, **options),
                layers.SeparableConv2D(4, 3, **options),
                layers.MaxPooling2D(**options),
                layers.AveragePooling2D(2, **options),
                layers.GlobalAveragePooling2D(**options),
                layers.Dense(1),
            ]
        )

    strategy = kdist.MirroredStrategy(replicas=2)
    monkeypatch.setattr(partition, "GraphPlan", plan)
    with mock.patch.object(NN, "_cpu_only", return_value=False):
        model = strategy.build(make)
        model.compile("sgd", "mse")
        model.optimizer.build(model.trainable_variables)

        def run(*parts):
            pairs = values.PerReplica(parts[:2]), values.PerReplica(parts[2:])
            return strategy.run(model.train_step, args=(pairs,))

        specs = [tf.TensorSpec((None, 4, 8, 8))] * 2 + [tf.TensorSpec((None, 1))] * 2
        tf.function(run, autograph=False).get_concrete_function(*specs)
    items = plans[-1].operations
    first = {
        item.op.type
        for item in items
        if "data_format" in item.op.node_def.attr and item.op.get_attr("data_format") == b"NCHW"
    }
    assert {"BiasAdd", "Conv2D", "Conv2DBackpropFilter", "DepthwiseConv2dNative"} <= first
    assert not [item.op for item in items if item.is_whole]
