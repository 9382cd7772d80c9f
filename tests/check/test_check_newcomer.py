"""A newcomer's script with six mistakes becomes equal by following what `check` says."""

import dataclasses

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from broken_models import FEATURES, Broken, Largest
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
        x = Centered(self.fixed)(hidden(inputs))
        model = Steps(self.fixed, inputs, layers.Dense(1)(x))
        model.compile(keras.optimizers.Adam(0.01))
        return model


class Centered(layers.Layer):
    def __init__(self, fixed):
        super().__init__()
        self.is_fixed = "mixing_layer" in fixed

    def call(self, x):
        return x - ops.mean(kdist.gather(x) if self.is_fixed else x, axis=0)


class LargestOfAll(Largest):
    def merge_replicas(self, variable, values):
        return ops.max(values, axis=0)


class Steps(keras.Model):
    def __init__(self, fixed, *args, **options):
        super().__init__(*args, **options)
        self.fixed = frozenset(fixed)
        self.largest = (LargestOfAll if "metric_state" in fixed else Largest)()

    def loss_of(self, errors):
        if "neither_mean_nor_sum" in self.fixed:
            errors = kdist.gather(errors)
        start = (0, tf.zeros((), errors.dtype))
        body = lambda i, total: (i + 1, total + 0.01 * tf.reduce_sum(errors))  # noqa: E731
        return tf.while_loop(lambda i, total: i < 2, body, start)[1]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            loss = self.loss_of(ops.square(predictions[:, 0] - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        if "changed_gradients" in self.fixed:
            gradients = kdist.sum_gradients(gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.largest.update_state(y, predictions)
        return {"loss": loss, "largest": self.largest.result()}


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
    assert rounds == [
        ["data_without_seed", "module_level_model"],  # with which no other experiment is reliable
        ["mixing_layer", "changed_gradients", "metric_state"],
        ["neither_mean_nor_sum"],  # of values of the layer that was named first
        [],
    ]
