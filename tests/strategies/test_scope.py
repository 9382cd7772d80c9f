"""Models that are made outside the scope of a strategy."""

import gc
import logging

import kdist
import keras
import numpy as np
import pytest
from kdist.errors import UserError

X, Y = np.ones((4, 3)), np.ones((4, 1))


def make_model(name):
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name=name)


@pytest.fixture
def warned_models(caplog):
    """The names of models that were warned of."""
    gc.collect()  # strategies of other tests
    caplog.set_level(logging.WARNING, "kdist")
    return lambda: [
        record.getMessage().split("'")[1]
        for record in caplog.records
        if "although a strategy of 2 replicas was made" in record.getMessage()
    ]


def test_fit_warns_once_of_a_forgotten_scope(warned_models):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = make_model("forgotten")
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    model.fit(X, Y, verbose=0)

    assert not strategy.is_used
    assert warned_models() == ["forgotten"]


def test_fit_does_not_warn_beside_a_strategy_that_is_used(warned_models):
    strategy = kdist.MirroredStrategy(replicas=2)
    strategy.run(lambda: None)
    one = kdist.MirroredStrategy(replicas=1)
    for name, model in (
        ("plain", make_model("plain")),
        ("of_one_replica", one.build(lambda: make_model("of_one_replica"))),
    ):
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
        assert name not in warned_models()


def test_a_model_that_is_compiled_in_another_scope_is_an_error():
    strategy = kdist.MirroredStrategy(replicas=2)
    model = make_model("outside")
    with strategy.scope():
        model.compile("sgd", "mse")

    with pytest.raises(UserError, match=r"'outside' was made outside the strategy's scope"):
        model.fit(X, Y, verbose=0)
