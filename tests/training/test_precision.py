import typing

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.training.run import precision_scope
from kdist.training.settings import Precision

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def settings():
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    return keras.config.dtype_policy().name, tf32


@pytest.mark.parametrize(
    ("precision", "policy", "tf32"),
    [
        ("float32", "float32", False),
        ("mixed_bfloat16", "mixed_bfloat16", False),
        ("mixed_float16", "mixed_float16", False),
        ("tf32", "float32", True),
    ],
)
def test_the_policy_lasts_as_long_as_the_block(precision, policy, tf32):
    before = settings()
    with pytest.raises(RuntimeError), precision_scope(precision, ["GPU:0"]):
        assert settings() == (policy, tf32)
        raise RuntimeError
    assert settings() == before


def test_tf32_needs_a_gpu():
    before = settings()
    words = r"precision=tf32.*CPU:0, CPU:1: choose float32"
    with pytest.raises(UserError, match=words), precision_scope("tf32", ["CPU:0", "CPU:1"]):
        pass
    assert settings() == before


@pytest.mark.parametrize("precision", sorted({*typing.get_args(Precision)} - {"float32", "tf32"}))
def test_two_replicas_give_what_one_gives(precision):
    """To the format's own rounding; an uneven last batch would be off by more."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(27, 8, 8, 3)).astype("float32"), rng.integers(0, 3, 27)
    weights = []
    for replicas in (1, 2):
        strategy = kdist.MirroredStrategy(replicas=replicas)
        with precision_scope(precision, strategy.devices):
            keras.utils.set_random_seed(0)
            model = strategy.build(network)
            with strategy.scope():
                model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        assert model.layers[1].compute_dtype == precision.removeprefix("mixed_")
        assert all(weight.dtype == "float32" for weight in model.trainable_weights)
        weights.append(model.get_weights())
    # Eight bits of a bfloat16's significand: half a percent of the largest change of a weight.
    tolerance = {"mixed_float16": 5e-3, "mixed_bfloat16": 3e-2}[precision]
    for expected, found in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=tolerance)


def network():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3, activation="softmax", dtype="float32"),
        ]
    )
