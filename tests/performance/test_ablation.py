import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.distribute.mirrored_strategy import MirroredStrategy
from kdist.performance.ablation import SkipAllReduce, repeat_first_batch


def trained(ops):
    """The kernel of each of two replicas, which saw different samples, and the history."""
    strategy = MirroredStrategy(replicas=2, cross_device_ops=ops)
    model = strategy.build(
        lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="dense")])
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
    history = model.fit(x, x[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0).history
    kernel = model.get_layer("dense").kernel.value
    return [part.numpy() for part in strategy.experimental_local_results(kernel)], history


def test_without_collectives_replicas_drift_apart():
    (one, other), history = trained(SkipAllReduce())
    assert np.abs(one - other).max() > 1e-3
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(history["mae"]).all()  # read by the host, so still reduced
    (one, other), _ = trained(None)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_same_batch_as_often_as_there_were_batches(steps):
    data = tf.data.Dataset.range(4 * steps).shuffle(4 * steps, seed=1).batch(4)
    again = repeat_first_batch(data)
    assert int(again.cardinality()) == steps
    batches = [batch.tolist() for batch in again.as_numpy_iterator()]
    assert batches == [batches[0]] * steps
    assert len(batches[0]) == 4
