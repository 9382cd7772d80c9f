"""`kdist find` on what keras.io's examples do: what it finds is what stock Keras gives."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.tools.find import batch_size, batch_size_try, rate_curve
from kdist.tools.find.batch_size import find_batch_size
from kdist.tools.find.batch_size_try import try_batch_size
from kdist.tools.find.learning_rate import find_learning_rate
from kdist.tools.find.rate_curve import rates_of
from test_keras_io import EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("float64", "without_graph_optimizer"),
    pytest.mark.filterwarnings("ignore:.* has its own train_step"),
]

FEW = ("text_lstm", "gan", "simclr")  # a compiled loss, and two steps of their own
STEPS, LEAST, MOST = 10, 1e-4, 3e-3


def whole_batch(name):
    """All samples as one batch, which Keras does not shuffle."""
    module, _ = EXAMPLES[name]
    data = module.data(module.SAMPLES)
    return tf.data.Dataset.from_tensor_slices(data if len(data) > 1 else data[0]).batch(
        module.SAMPLES
    )


def on_stock_keras(name):
    """Losses with a rate that rises."""
    _, make = EXAMPLES[name]
    keras.utils.set_random_seed(0)
    model = make()
    model.run_eagerly = True
    losses = []
    for rate in rates_of(LEAST, MOST, STEPS):
        model.optimizer.learning_rate = rate
        history = model.fit(whole_batch(name), shuffle=False, verbose=0).history
        losses.append(history["loss"][0])
    return losses


@pytest.mark.parametrize("name", ["text_lstm"])
def test_rate(name, monkeypatch):
    monkeypatch.setattr(rate_curve, "DIVERGENCE", 1e9)
    _, make = EXAMPLES[name]
    found = find_learning_rate(
        make,
        lambda: (whole_batch(name), None),
        least=LEAST,
        most=MOST,
        steps=STEPS,
    )
    assert found.rates == rates_of(LEAST, MOST, STEPS)
    np.testing.assert_allclose(found.losses, on_stock_keras(name), rtol=1e-6)


FILE = """
import sys
import {module}

make = {module}.{make}


def data():
    arrays = {module}.data({module}.SAMPLES)
    return (arrays if len(arrays) > 1 else (*arrays, None)), None
"""


def run_without_limit(orders):
    return try_batch_size(**orders)


@pytest.mark.parametrize("name", FEW)
def test_batch(name, tmp_path, monkeypatch):
    """All samples are the largest batch; each try here, as a process of its own takes long."""
    module, make = EXAMPLES[name]
    path = tmp_path / f"{name}_file.py"
    path.write_text(FILE.format(module=module.__name__, make=make.__name__))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(batch_size, "run_in_process", run_without_limit)
    monkeypatch.setattr(batch_size_try, "limit_memory", lambda: False)
    found = find_batch_size(f"{path}:make", start=module.SAMPLES, replicas=1)
    assert (found.largest, found.limit) == (module.SAMPLES, "data")
    works = [one for one in found.tries if one.works]
    assert [one.batch_size for one in works] == [module.SAMPLES]
    assert works[0].samples_per_second > 0
