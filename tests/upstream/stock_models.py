"""Models for upstream tests, and what replicas compute.

An upstream test shows the stock behaviour that a patch works around. When it fails, upstream has
changed: delete the patch and the test.
"""

import keras
import tensorflow as tf


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


def with_test_step(strategy, step, **metrics):
    """A model whose test step is `step(model, data)`; metrics are its attributes."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            for name, kind in metrics.items():
                setattr(self, name, kind())

        def call(self, x):
            return x

        def test_step(self, data):
            return step(self, data)

    with strategy.scope():
        model = Own()
        model.compile()
    return model


def on_replicas(strategy, fn):
    results = tf.function(lambda: strategy.run(fn), autograph=False)()
    return [value.numpy() for value in strategy.experimental_local_results(results)]


def copies(variable):
    """The value that each replica has."""
    return [float(copy.numpy()) for copy in variable.value.values]
