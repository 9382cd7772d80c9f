"""One step of softmax regression with clipped SGD, worked out in NumPy."""

import kdist
import keras
import numpy as np
import pytest
from replicas import assert_close

SAMPLES, RATE, CLIP = 5, 0.5, 0.2


def softmax(logits):
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def one_step(x, y, kernel, bias, sample_weight):
    """Cross-entropy's gradient, a mean over all samples, clipped by its global norm."""
    error = (softmax(x @ kernel + bias) - np.eye(3)[y]) * sample_weight[:, None] / len(x)
    gradients = [x.T @ error, error.sum(axis=0)]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    assert norm > CLIP, "nothing would be clipped"
    return [w - RATE * g * CLIP / norm for w, g in zip((kernel, bias), gradients, strict=True)]


def mean_loss(x, y, kernel, bias, sample_weight):
    likely = softmax(x @ kernel + bias)[np.arange(len(y)), y]
    return (-np.log(likely) * sample_weight).mean()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_a_clipped_step_on_an_uneven_batch(replicas):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SAMPLES, 4)), rng.integers(0, 3, SAMPLES)
    kernel, bias = rng.normal(size=(4, 3)), rng.normal(size=3)
    sample_weight = rng.uniform(0.5, 2, SAMPLES)

    strategy = kdist.MirroredStrategy(replicas=replicas)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        optimizer = keras.optimizers.SGD(RATE, global_clipnorm=CLIP)
        model.compile(optimizer, "sparse_categorical_crossentropy")
    model.set_weights([kernel, bias])
    history = model.fit(x, y, batch_size=SAMPLES, sample_weight=sample_weight, verbose=0).history

    assert_close(
        model.get_weights(), one_step(x, y, kernel, bias, sample_weight), rtol=0, atol=1e-9
    )
    assert history["loss"][0] == pytest.approx(mean_loss(x, y, kernel, bias, sample_weight))
