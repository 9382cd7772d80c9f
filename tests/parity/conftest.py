"""A hundred models in one process: forget each when its test is over."""

import keras
import pytest


@pytest.fixture(autouse=True)
def forgotten():
    yield
    keras.backend.clear_session()
