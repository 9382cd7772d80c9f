"""Many models in one process: forget each when its test is over."""

import keras
import pytest
from replicas import forget_custom_gradients


@pytest.fixture(autouse=True)
def forgotten():
    yield
    forget_custom_gradients()
    keras.backend.clear_session()
