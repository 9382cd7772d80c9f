"""Models for upstream tests, and what replicas compute.

An upstream test shows the stock behaviour that a patch works around. When it fails, upstream has
changed: delete the patch and the test.
"""

import keras


def linear(strategy, optimizer=None, loss="mse", **compile_options):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")]
        )
        model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **compile_options)
    return model


def of_layer(strategy, layer, **compile_options):
    """A model of one layer, `layer()`, for rows of one number."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), layer()])
        model.compile("sgd", **compile_options)
    return model
