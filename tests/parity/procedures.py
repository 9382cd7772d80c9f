"""Ways to train a model other than one `fit`, one `evaluate` and one `predict`."""

import tempfile
from pathlib import Path

import keras
import numpy as np


def batch_by_batch(run):
    """`train_on_batch`, `test_on_batch` and `predict_on_batch`; the last batch is smaller."""
    data = run.data
    x, y = data[:2]
    parts = [slice(start, start + run.case.batch) for start in range(0, len(x), run.case.batch)]
    logs = []
    for rows in parts * 2:
        some = [leaf[rows] for leaf in data]
        logs.append(run.model.train_on_batch(*some, return_dict=True))
    run.history = {name: [log[name] for log in logs] for name in logs[0]}
    tests = [run.model.test_on_batch(x[rows], y[rows]) for rows in parts]
    guesses = np.concatenate([run.model.predict_on_batch(x[rows]) for rows in parts])
    run.scores = {"tests": np.array(tests), "guesses": guesses}


def class_weighted_batches(run):
    x, y = run.data
    weight = {0: 1.0, 1: 5.0, 2: 0.3}
    logs = [run.model.train_on_batch(x[:7], y[:7], class_weight=weight) for _ in range(3)]
    run.scores = {"logs": np.array(logs)}


def fine_tuning(run):
    """A new head first, then everything, compiled again, with another optimizer state."""
    run.fit(epochs=1)
    run.model.get_layer("base").trainable = True
    run.compile()
    run.fit(epochs=1)
    run.evaluate()


def resumed(run):
    """Saved after an epoch, opened again in the scope, and trained on."""
    run.fit(epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        run.model.save(path)
        with run.strategy.scope():
            run.model = keras.models.load_model(path)
    run.fit(epochs=1)
    run.evaluate()


def evaluated_first(run):
    """An untrained model is evaluated; the optimizer is built later."""
    run.evaluate()
    run.fit()


def predicted_with_steps(run):
    """`predict` on a feed of its own: several batches an execution, names in the outputs."""
    run.fit(epochs=1)
    run.evaluate()
    x = run.feed()["x"]
    outputs = keras.tree.flatten(run.model.predict(x, verbose=0))
    run.scores |= {f"output_{index}": output for index, output in enumerate(outputs)}


def optimizer_built_first(run):
    """Without a strategy Keras builds it while tracing, with what it initializes in every step."""
    with run.strategy.scope():
        run.model.optimizer.build(run.model.trainable_variables)
    run.fit()
