"""Operations that Keras makes on GPUs alone, planned without a GPU."""

import sys
from unittest import mock

import kdist
import keras
import tensorflow as tf
from rule_harness import recorded_plans
from tensorflow.python.distribute import values

NN = sys.modules["keras.src.backend.tensorflow.nn"]


def test_channels_first_are_divided():
    """GPUs have convolutions with channels first; on CPUs Keras transposes their inputs."""
    layers, options = keras.layers, {"data_format": "channels_first"}

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
    with recorded_plans() as plans, mock.patch.object(NN, "_cpu_only", return_value=False):
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
