"""KerasTuner as it is, with `distribution_strategy`: a user's own model and hyperparameters."""

import functools

import kdist
import keras
import keras_tuner
import numpy as np
import pytest
from replicas import assert_close

X = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


def build(hp, *, eagerly):
    model = keras.Sequential([keras.Input((4,))])
    model.add(keras.layers.Dense(hp.Int("units", 2, 8), "relu"))
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.Dense(1, "sigmoid"))
    rate = hp.Float("learning_rate", 1e-3, 1e-1, sampling="log")
    options = {"metrics": ["accuracy"], "run_eagerly": eagerly}
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", **options)
    return model


def search(folder, strategy):
    """Search on a strategy, or without one if it is `None`."""
    keras.utils.set_random_seed(1)
    tuner = keras_tuner.RandomSearch(
        functools.partial(build, eagerly=strategy is None),
        objective="val_loss",
        max_trials=2,
        seed=1,
        distribution_strategy=strategy,
        directory=folder,
    )
    tuner.search(X, Y, validation_data=(X, Y), batch_size=12, epochs=2, verbose=0)
    return tuner


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # KerasTuner's
def test_trials_on_replicas_are_those_without_a_strategy(tmp_path, capsys):
    strategies = {"alone": None, "on replicas": kdist.MirroredStrategy(replicas=2)}
    tuners = [search(tmp_path / name, strategy) for name, strategy in strategies.items()]
    scores = [
        [(trial.hyperparameters.values, trial.score) for trial in tuner.oracle.trials.values()]
        for tuner in tuners
    ]
    for (expected_values, expected), (values, score) in zip(*scores, strict=True):
        assert values == expected_values
        assert score == pytest.approx(expected, rel=1e-5)
    best = tuners[1].get_best_models()[0]
    loss, _ = best.evaluate(X, Y, batch_size=12, verbose=0)
    assert loss == pytest.approx(min(score for _, score in scores[1]), rel=1e-5)
    expected = tuners[0].get_best_models()[0].get_weights()
    assert_close(best.get_weights(), expected, rtol=1e-4, atol=1e-6)
