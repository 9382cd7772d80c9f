"""A newcomer's script with two mistakes becomes equal by following what `check` says."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from broken_models import FEATURES, Broken
from keras import layers, ops
from test_check_broken import check

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


HIDDEN = layers.Dense(8, "tanh", name="hidden")


@dataclasses.dataclass
class Script:
    """A script in which only these causes are fixed, each as `check` says."""

    fixed: set[str]

    def data(self):
        draw = np.random.default_rng(0 if "data_without_seed" in self.fixed else None)
        x = draw.normal(size=(48, FEATURES)) + 2
        return (x[:40], x[:40].sum(axis=1)), (x[40:], x[40:].sum(axis=1))

    def build(self):
        inputs = keras.Input((FEATURES,))
        is_fixed = "module_level_model" in self.fixed
        hidden = layers.Dense(8, "tanh", name="hidden") if is_fixed else HIDDEN
        model = Steps(inputs, layers.Dense(1)(Centered()(hidden(inputs))))
        model.compile(keras.optimizers.Adam(0.01))
        return model


class Centered(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0)


class Steps(keras.Model):
    """Computes from the whole batch, which is no mistake."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.max(ops.square(self(x, training=True)[:, 0] - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def test_following_what_check_says_makes_a_script_equal():
    script, rounds = Script(set()), []
    while True:
        result = check(Broken(build=script.build, data=script.data, cause=""))
        named = [cause.name for cause in result.causes]
        rounds.append(named)
        if result.equal:
            break
        assert set(named) - script.fixed, result  # something to do in each round
        assert not set(named) & script.fixed, result  # and nothing that is done
        assert all(cause.line and cause.fix for cause in result.causes), result
        script.fixed.update(named)
    assert rounds == [["data_without_seed", "module_level_model"], []]
