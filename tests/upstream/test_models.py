"""Private names that are read or called: what kdist relies on."""

import importlib

import kdist
import kdist._upstream
import keras
import numpy as np
from kdist._upstream.models import stock_step
from stock_models import linear


def test_keras_hands_its_own_steps_to_run(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = linear(strategy)
    assert stock_step(model.train_step) == (model, "train_step")
    assert stock_step(model.test_step) == (model, "test_step")
    assert stock_step(model.predict_step) is None
    steps, run = [], strategy.run

    def seen(fn, *args, **options):
        steps.append(stock_step(fn))
        return run(fn, *args, **options)

    monkeypatch.setattr(strategy, "run", seen)
    model.predict(np.ones((2, 1)), verbose=0)
    assert {*steps} == {(model, "predict_step")}


def test_versions_that_were_not_tested_are_told_in_one_line(monkeypatch, caplog):
    monkeypatch.setattr(keras, "__version__", "3.99.0")
    importlib.reload(kdist._upstream)
    (line,) = caplog.messages
    assert "tested with Keras 3.14 and 3.15, not with 3.99.0: " in line
    monkeypatch.undo()
    importlib.reload(kdist._upstream)
    assert caplog.messages == [line]
