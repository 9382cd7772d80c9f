"""Small trainings on several workers, and what they are to agree on."""

import contextlib

import keras
import pytest
import samples
import small_models
import tensorflow as tf
from kdist.errors import UserError

X, Y = samples.classes(32)


def compiled(strategy, make=small_models.mlp, optimizer="sgd"):
    keras.utils.set_random_seed(0)
    model = strategy.build(make)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def batches_of_unknown_number(number, rows):
    """A dataset of batches which does not say how many it has."""
    signature = tf.TensorSpec((None, 6), "float64"), tf.TensorSpec((None,), "int64")
    batches = [(X[:rows], Y[:rows])] * number
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


def agree(strategy, value):
    everyone = strategy.exchange("a test", value)
    assert all(one == everyone[0] for one in everyone), everyone
    return everyone


@contextlib.contextmanager
def refused(*parts: str):
    with pytest.raises(UserError) as error:
        yield
    assert all(part in str(error.value) for part in parts), str(error.value)
