"""A user's file that interrupts its search once, in the third batch, if told to."""

_SOURCE = """
import os
import pathlib
import signal
import time

import keras
import numpy as np

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        signals = pathlib.Path(__file__).with_name("signals")
        if index == 2 and signals.exists():
            signals.unlink()
            interrupt()
        x = np.ones((8, 2), "float32")
        return x, x[:, 0]

def data():
    return Batches(), Batches()

def build(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 1))])
    model.compile("sgd", "mse")
    return model
"""


def interrupting_model(interrupt):
    """The text of the file: `interrupt` is what it does if there is a file `signals` beside it."""
    return _SOURCE.replace("interrupt()", interrupt)
