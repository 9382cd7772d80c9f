"""Save models as this version of kdist does, for later ones to open.

    python tests/earlier_versions/record.py NAME

Writes `NAME_lars.keras`, `NAME_novograd.keras` and `NAME.json`, what the models predict, beside
this file. What a version has saved stays here; a new one is added when a saved class changes.
"""

import json
import sys
from pathlib import Path

import kdist
import keras
import numpy as np
from kdist.layers import SyncBatchNormalization
from kdist.optimizers import LARS, NovoGrad, WarmUp

HERE = Path(__file__).parent
ROWS = np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6)
LABELS = np.array([0, 1, 2, 0])
OPTIMIZERS = {
    "lars": lambda: LARS(WarmUp(keras.optimizers.schedules.CosineDecay(0.1, 8), steps=2)),
    "novograd": lambda: NovoGrad(0.01, weight_decay_rate=0.1),
}


def make():
    layers = [keras.Input((6,)), keras.layers.Dense(4), SyncBatchNormalization()]
    layers += [keras.layers.Dropout(0.1), keras.layers.Dense(3, activation="softmax")]
    return keras.Sequential(layers)


def record(name):
    """Train and save the models; write what they predict."""
    predicted = {}
    strategy = kdist.MirroredStrategy(replicas=2)
    for optimizer, make_optimizer in OPTIMIZERS.items():
        keras.utils.set_random_seed(0)
        model = strategy.build(make)
        with strategy.scope():
            model.compile(make_optimizer(), "sparse_categorical_crossentropy")
        model.fit(ROWS, LABELS, batch_size=2, epochs=2, verbose=0)
        model.save(HERE / f"{name}_{optimizer}.keras")
        predicted[optimizer] = model.predict(ROWS, verbose=0).tolist()
    (HERE / f"{name}.json").write_text(json.dumps(predicted) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
