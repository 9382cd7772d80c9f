"""Private names that are read or called: what kdist relies on."""

import importlib

import kdist
import kdist._upstream
import keras
import numpy as np
from kdist._upstream.models import model_of_step
from stock_models import linear


def test_keras_passes_a_step_to_run(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = linear(strategy)
    assert model_of_step(model.train_step) is model_of_step(model.test_step) is model
    assert model_of_step(model.predict_step) is None
    models, run = [], strategy.run

    def seen(fn, *args, **options):
        models.append(model_of_step(fn))
        return run(fn, *args, **options)

    monkeypatch.setattr(strategy, "run", seen)
    model.predict(np.ones((2, 1)), verbose=0)
    assert {*models} == {model}


def test_versions_that_were_not_tested_are_told_in_one_line(monkeypatch, caplog):
    monkeypatch.setattr(keras, "__version__", "3.99.0")
    importlib.reload(kdist._upstream)
    (line,) = caplog.messages
    assert "tested with Keras 3.14 and 3.15, not with 3.99.0: " in line
    monkeypatch.undo()
    importlib.reload(kdist._upstream)
    assert caplog.messages == [line]
