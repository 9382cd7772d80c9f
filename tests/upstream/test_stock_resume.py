"""Obstacles of an exact resume in stock Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from stock_models import linear


class Failing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise IndexError


def test_a_callback_does_not_learn_that_a_fit_has_failed():
    """`on_train_end` is not called."""
    ended = []
    noting = keras.callbacks.LambdaCallback(on_train_end=ended.append)
    x = np.ones((2, 1))
    with pytest.raises(IndexError):
        linear(tf.distribute.get_strategy()).fit(x, x, callbacks=[noting, Failing()], verbose=0)
    assert not ended


def test_history_is_called_after_a_users_callbacks():
    callbacks = keras.callbacks.CallbackList([keras.callbacks.Callback()], add_history=True)
    assert isinstance(callbacks.callbacks[-1], keras.callbacks.History)


def test_the_logs_of_an_epoch_are_those_of_its_metrics():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.evaluate(np.ones((1, 1)), np.ones((1, 1)), verbose=0)
    model.reset_metrics()
    assert model._get_metrics_result_or_logs({"loss": 5.0}) == {"loss": 0.0}
