"""Files that earlier versions saved open, with what they predicted and where they were."""

import json

import keras
import numpy as np
import pytest
from kdist.layers import SyncBatchNormalization
from record import HERE, LABELS, OPTIMIZERS, ROWS

SAVED = sorted(path.stem for path in HERE.glob("*.json"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("version", SAVED)
def test_a_file_opens_and_trains_on(version, optimizer):
    model = keras.models.load_model(HERE / f"{version}_{optimizer}.keras")
    assert any(isinstance(layer, SyncBatchNormalization) for layer in model.layers)
    expected = json.loads((HERE / f"{version}.json").read_text())[optimizer]
    np.testing.assert_allclose(model.predict(ROWS, verbose=0), expected, atol=1e-6)
    assert int(model.optimizer.iterations.numpy()) == 4
    assert type(model.optimizer) is type(OPTIMIZERS[optimizer]())
    model.fit(ROWS, LABELS, batch_size=2, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 6
