"""Small trainings on several workers, and what they are to agree on."""

import contextlib

import keras
import pytest
import samples
import small_models
from kdist.errors import UserError

X, Y = samples.classes(32)


def compiled(strategy, make=small_models.mlp, optimizer="sgd"):
    keras.utils.set_random_seed(0)
    model = strategy.build(make)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def agree(strategy, value):
    everyone = strategy.exchange("a test", value)
    assert all(one == everyone[0] for one in everyone), everyone
    return everyone


@contextlib.contextmanager
def refused(*parts: str):
    with pytest.raises(UserError) as error:
        yield
    assert all(part in str(error.value) for part in parts), str(error.value)
