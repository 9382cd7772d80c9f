"""Many models in one process: forget each when its test is over."""

import gc

import keras
import pytest


@pytest.fixture(autouse=True)
def forgotten():
    yield
    keras.backend.clear_session()
    gc.freeze()  # what outlived this is TensorFlow's; the next collection need not walk it again
