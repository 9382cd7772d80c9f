"""Worker 1 fails, while the others wait for it."""

import keras
import numpy as np


class Failing(keras.callbacks.Callback):
    """Fails on worker 1, between two steps or at the end of an epoch."""

    def __init__(self, worker: int, *, in_epoch: bool) -> None:
        super().__init__()
        self.fails, self.in_epoch = worker == 1, in_epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.fails and self.in_epoch:
            raise ValueError("my own mistake")

    def on_epoch_end(self, epoch, logs=None):
        if self.fails:
            raise ValueError("my own mistake")


def prepare(strategy, folder):
    def run(name):
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        failing = Failing(strategy.worker, in_epoch=name == "while_others_train")
        ones = np.ones((8, 2))
        model.fit(ones, ones[:, :1], batch_size=2, verbose=0, callbacks=[failing])

    return run
