"""Train on replicas and compare: helpers of all tests."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry


def assert_close(found, expected, rtol=1e-7, atol=0.0, err_msg=""):
    """Fail unless nested arrays, tensors or variables differ by rounding alone."""
    for value, wanted in _pairs(found, expected):
        np.testing.assert_allclose(value, wanted, rtol, atol, err_msg=err_msg)


def assert_equal(found, expected, err_msg=""):
    """Fail unless nested arrays, tensors or variables are equal."""
    for value, wanted in _pairs(found, expected):
        np.testing.assert_array_equal(value, wanted, err_msg=err_msg)


def _pairs(found, expected):
    return zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True)


def forget_custom_gradients():
    """Discard the graphs of custom gradients that were traced so far.

    A traced function can still be run, and a gradient that was traced with the function, too. Only
    a gradient that was not traced with its function can no longer be computed.
    """
    for name in list(gradient_registry.list()):
        if name.startswith("CustomGradient-"):
            gradient_registry._registry.pop(name, None)


def per_replica(strategy, parts):
    """Return a distributed value of which each replica has one part."""
    tensors = [tf.convert_to_tensor(part) for part in parts]
    return strategy.experimental_distribute_values_from_function(
        lambda context: tensors[context.replica_id_in_sync_group]
    )


def divide(strategy, rows):
    """Return the rows of arrays, as one batch that is divided over the replicas."""
    (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(rows))
    return batch


def stock_mirrored(replicas=2):
    """Return TensorFlow's own strategy on logical CPUs."""
    devices = [f"CPU:{number}" for number in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def fit(strategy, make, x, y, *, optimizer="sgd", loss="mse", batch_size=4, epochs=1, **options):
    """Return a model that is made and fitted under a strategy, or without one if it is `None`.

    Args:
        strategy: The strategy; kdist's synchronizes batch norms.
        make: Returns the model.
        x: Its inputs.
        y: Its targets.
        optimizer: Its optimizer, or a function that makes it.
        loss: Its loss.
        batch_size: The number of samples of a batch, which are not shuffled.
        epochs: The number of epochs.
        options: More of `compile`.
    """
    keras.utils.set_random_seed(0)
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = strategy.build(make) if hasattr(strategy, "build") else make()
        made = optimizer() if callable(optimizer) else optimizer
        model.compile(made, loss, **options)
    model.fit(x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0)
    return model
