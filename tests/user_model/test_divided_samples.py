"""Data functions that draw which samples are validated."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.user_model.functions import load_functions

DIVIDED = """
import random

import numpy as np
import tensorflow as tf

def build():
    return None

def data(batch_size):
    order = np.random.permutation(20)
    random.shuffle(order)
    pairs = [tf.data.Dataset.from_tensor_slices((part, part)) for part in (order[:12], order[12:])]
    return [one.batch(batch_size) for one in pairs]

def drawn_by_tensorflow(batch_size):
    order = tf.data.Dataset.range(20).shuffle(20, reshuffle_each_iteration=False)
    order = order.map(lambda one: (one, one))
    return order.take(12).batch(batch_size), order.skip(12).batch(batch_size)
"""


@pytest.mark.parametrize("data", ["data", "drawn_by_tensorflow"])
def test_samples_divided_at_random_are_divided_once(tmp_path, data):
    """Also where the validation's batch is another, for which the function is called again."""
    path = tmp_path / "divided.py"
    path.write_text(DIVIDED)
    functions = load_functions(f"{path}:build", data)
    following = []
    for batches in ((4, 4), (4, 3)):
        keras.utils.set_random_seed(3)
        got = functions.load_data(*batches)
        parts = [[int(x) for b in one for x in b[0]] for one in (got.training, got.validation)]
        assert sorted(parts[0] + parts[1]) == list(range(20))
        following.append((parts, random.random(), np.random.uniform(), tf.random.uniform(())))
    assert following[0] == following[1]
