import pytest
import tensorflow as tf


@pytest.fixture
def stock():
    """TensorFlow's own strategy over two logical CPUs."""
    devices = ["/cpu:0", "/cpu:1"]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
