"""What keras.io's examples do gives the same model on several replicas as on stock Keras."""

import adversarial
import gan
import kdist
import keras
import knowledge_distillation
import numpy as np
import pytest
import simclr
import tensorflow as tf
import text_lstm
import text_transformer
import variational_autoencoder
import vision_transformer
import wgan_gp

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float64", "without_graph_optimizer")]

MODULES = (
    adversarial,
    gan,
    knowledge_distillation,
    simclr,
    text_lstm,
    text_transformer,
    variational_autoencoder,
    vision_transformer,
    wgan_gp,
)
EXAMPLES = {module.__name__: (module, module.make) for module in MODULES} | {
    "knowledge_distillation_with_own_step": (
        knowledge_distillation,
        knowledge_distillation.make_with_own_step,
    )
}


def train(name, strategy):
    """The weights and the history of two epochs; labelled data are also evaluated after each."""
    module, make = EXAMPLES[name]
    data = module.data(module.SAMPLES)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = make()
    # Stock Keras gives the same without a graph, whose tracing takes longer than so few steps.
    model.run_eagerly = not isinstance(strategy, kdist.MirroredStrategy)
    history = model.fit(
        *data,
        batch_size=module.BATCH,
        epochs=2,
        shuffle=False,
        validation_data=data if len(data) == 2 else None,
        validation_batch_size=module.BATCH,
        verbose=0,
    ).history
    return model.get_weights(), history


# Each once, as a step takes long to trace; on three replicas, which divide no batch evenly, one
# that compares the rows of a batch with each other and one of several optimizer steps in one.
ON_THREE = ("simclr", "wgan_gp")


@pytest.mark.parametrize("name", EXAMPLES)
def test_several_replicas_give_what_stock_keras_gives(name):
    expected_weights, expected_history = train(name, tf.distribute.get_strategy())
    replicas = 3 if name in ON_THREE else 2
    strategy = kdist.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
    weights, history = train(name, strategy)
    for expected, got in zip(expected_weights, weights, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)
    assert history.keys() == expected_history.keys()
    for metric, values in expected_history.items():
        np.testing.assert_allclose(history[metric], values, rtol=0, atol=1e-6, err_msg=metric)
