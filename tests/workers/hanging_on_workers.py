"""Worker 1 does not come back from a callback, after the first step."""

import threading

import keras
import numpy as np
from kdist.workers import hang_detection

# A busy machine may take longer than users are to wait.
hang_detection._LEAVE_SECONDS = 10.0
hang_detection._ANSWER_SECONDS = 120.0


class Stuck(keras.callbacks.Callback):
    stops_in_epoch = False

    def on_train_batch_end(self, batch, logs=None):
        threading.Event().wait()


def prepare(strategy, folder):
    def train(name):
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        ones = np.ones((8, 2))
        callbacks = [Stuck()] * strategy.worker
        model.fit(ones, ones[:, :1], batch_size=2, verbose=0, callbacks=callbacks)

    return train
