"""LARS and NovoGrad against the papers' algorithms in NumPy, and as Keras optimizers."""

import json
from pathlib import Path

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.optimizers import LARS, NovoGrad
from replicas import assert_close

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

# The learning rate is a float32, also where the weights are float64.
RATE_ROUNDING = {"rtol": 1e-6, "atol": 1e-8}
PEERS = json.loads((Path(__file__).parent / "peer_trajectories.json").read_text())


def lars(weights, gradients, rate, momentum, trust, decay):
    """You et al. 2017, algorithm 1, with the small number that LARS adds to the divisor."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        size, slope = np.linalg.norm(weights), np.linalg.norm(gradient)
        ratio = trust * size / (slope + decay * size + 1e-8) if size > 0 and slope > 0 else 1.0
        step = rate * ratio * (gradient + decay * weights)
        velocity = momentum * velocity + step
        weights = weights - velocity
    return weights


def novograd(weights, gradients, rate, beta_1, beta_2, decay):
    """Ginsburg et al. 2019, algorithm 1."""
    first = np.linalg.norm(gradients[0])
    squared, momentum = first**2, gradients[0] / first + decay * weights
    weights = weights - rate * momentum
    for gradient in gradients[1:]:
        squared = beta_2 * squared + (1 - beta_2) * np.linalg.norm(gradient) ** 2
        normal = gradient / np.sqrt(squared)
        momentum = beta_1 * momentum + normal + decay * weights
        weights = weights - rate * momentum
    return weights


def stepped(optimizer, weights, gradients, name="kernel"):
    variable = keras.Variable(weights, name=name)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient, variable.dtype)], [variable])
    return variable.numpy()


def problem(seed, steps=20):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4, 3)), [rng.normal(size=(4, 3)) for _ in range(steps)]


fractions = st.floats(0, 0.99)


@pytest.mark.usefixtures("float64")
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), fractions, st.floats(1e-4, 0.5), st.floats(0, 0.1))
def test_lars_is_the_papers_algorithm(seed, momentum, trust, decay):
    weights, gradients = problem(seed)
    optimizer = LARS(
        0.5,
        momentum=momentum,
        trust_coefficient=trust,
        weight_decay_rate=decay,
    )
    expected = lars(weights, gradients, 0.5, momentum, trust, decay)
    assert_close(stepped(optimizer, weights, gradients), expected, **RATE_ROUNDING)


@pytest.mark.usefixtures("float64")
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), fractions, fractions, st.floats(0, 0.1))
def test_novograd_is_the_papers_algorithm(seed, beta_1, beta_2, decay):
    weights, gradients = problem(seed)
    optimizer = NovoGrad(
        0.05,
        beta_1=beta_1,
        beta_2=beta_2,
        weight_decay_rate=decay,
    )
    expected = novograd(weights, gradients, 0.05, beta_1, beta_2, decay)
    assert_close(stepped(optimizer, weights, gradients), expected, **RATE_ROUNDING)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer["name"])
def test_twenty_steps_of_an_independent_implementation(peer):
    """Recorded by `record_peers.py`."""
    optimizer = {"LARS": LARS, "NovoGrad": NovoGrad}[peer["optimizer"]](**peer["arguments"])
    weights, gradients = np.array(peer["weights"]), np.array(peer["gradients"])
    assert len(gradients) == 20
    np.testing.assert_allclose(
        stepped(optimizer, weights, gradients), peer["after"], rtol=1e-6, atol=1e-9
    )


@pytest.mark.usefixtures("float64")
def test_lars_excludes_biases_and_batch_norm():
    weights, gradients = problem(0)
    for name in ("bias", "beta", "gamma"):
        optimizer = LARS(0.1, weight_decay_rate=0.1)
        sgd = keras.optimizers.SGD(0.1, momentum=0.9)
        np.testing.assert_allclose(
            stepped(optimizer, weights, gradients, name),
            stepped(sgd, weights, gradients),
            rtol=1e-6,  # Keras rounds SGD's momentum to float32
        )


@pytest.mark.usefixtures("float64")
def test_weights_or_gradients_of_zero_take_plain_steps():
    gradient = np.ones((2, 2))
    np.testing.assert_allclose(stepped(LARS(0.1), np.zeros((2, 2)), [gradient]), -0.1 * gradient)
    for optimizer in (LARS(0.1), NovoGrad(0.1)):
        np.testing.assert_array_equal(stepped(optimizer, gradient, [0 * gradient]), gradient)


@pytest.mark.parametrize(
    "optimizer",
    [
        LARS(
            kdist.optimizers.WarmUp(3.0, steps=5),
            momentum=0.8,
            trust_coefficient=0.01,
            weight_decay_rate=0.1,
            clipnorm=1.0,
        ),
        NovoGrad(
            0.2,
            beta_1=0.9,
            beta_2=0.5,
            weight_decay_rate=0.1,
            use_ema=True,
        ),
    ],
    ids=["LARS", "NovoGrad"],
)
def test_saved_with_its_model_and_gone_on_with(optimizer, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    read = keras.models.load_model(tmp_path / "model.keras")
    assert read.optimizer.get_config() == optimizer.get_config()
    for one in (model, read):
        one.fit(x, y, verbose=0)
    assert_close(model.get_weights(), read.get_weights(), rtol=1e-6)


@pytest.mark.parametrize("optimizer_class", [LARS, NovoGrad])
def test_mixed_precision(optimizer_class):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="mixed_float16")])
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer_class(0.1), 8.0), "mse")
    before = model.get_weights()
    model.fit(np.ones((8, 3)), np.ones((8, 2)), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert not np.array_equal(before[0], model.get_weights()[0])


@pytest.mark.parametrize("optimizer_class", [LARS, NovoGrad])
def test_an_embeddings_gradient_counts_a_row_named_twice_once_and_summed(optimizer_class):
    rows = tf.IndexedSlices(tf.ones((3, 2)), tf.constant([0, 0, 2]), tf.constant([4, 2]))
    weights = np.arange(8.0).reshape(4, 2)
    got = []
    for gradient in (rows, tf.convert_to_tensor(rows)):
        variable = keras.Variable(weights)
        optimizer_class(0.1).apply([gradient], [variable])
        got.append(variable.numpy())
    np.testing.assert_array_equal(*got)


@pytest.mark.parametrize(
    ("optimizer_class", "arguments"),
    [
        (LARS, {"momentum": 1}),
        (LARS, {"trust_coefficient": 0}),
        (LARS, {"weight_decay_rate": -1}),
        (LARS, {"weight_decay": 0.1}),
        (NovoGrad, {"beta_1": 1.0}),
        (NovoGrad, {"beta_2": -0.1}),
        (NovoGrad, {"weight_decay": 0.1}),
    ],
)
def test_arguments_out_of_range_are_refused(optimizer_class, arguments):
    with pytest.raises(UserError, match=next(iter(arguments))):
        optimizer_class(**arguments)


@pytest.mark.usefixtures("float64")
def test_novograd_begins_with_the_first_gradient_that_is_not_zero():
    weights, gradients = problem(1)
    late = stepped(NovoGrad(0.1), weights, [0 * gradients[0], *gradients])
    np.testing.assert_allclose(late, stepped(NovoGrad(0.1), weights, gradients), rtol=1e-12)
