"""KerasTuner as it is, with `distribution_strategy`: a user's own model and hyperparameters."""

import kdist
import keras
import keras_tuner
import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


def build(hp):
    model = keras.Sequential([keras.Input((4,))])
    model.add(keras.layers.Dense(hp.Int("units", 2, 8), "relu"))
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.Dense(1, "sigmoid"))
    rate = hp.Float("learning_rate", 1e-3, 1e-1, sampling="log")
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=["accuracy"])
    return model


def search(folder, replicas):
    keras.utils.set_random_seed(1)
    tuner = keras_tuner.RandomSearch(
        build,
        objective="val_loss",
        max_trials=2,
        seed=1,
        distribution_strategy=kdist.MirroredStrategy(replicas=replicas),
        directory=folder,
        project_name=f"on {replicas}",
    )
    tuner.search(X, Y, validation_data=(X, Y), batch_size=12, epochs=2, verbose=0)
    return tuner


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # KerasTuner's
def test_trials_are_the_same_on_any_number_of_replicas(tmp_path, capsys):
    tuners = [search(tmp_path, replicas) for replicas in (1, 2)]
    scores = [
        [(trial.hyperparameters.values, trial.score) for trial in tuner.oracle.trials.values()]
        for tuner in tuners
    ]
    for (values, score), (others, other) in zip(*scores, strict=True):
        assert values == others
        assert other == pytest.approx(score, rel=1e-5)
    best = tuners[1].get_best_models()[0]
    loss, _ = best.evaluate(X, Y, batch_size=12, verbose=0)
    assert loss == pytest.approx(min(score for _, score in scores[1]), rel=1e-5)
    for weights, others in zip(
        best.get_weights(), tuners[0].get_best_models()[0].get_weights(), strict=True
    ):
        np.testing.assert_allclose(weights, others, rtol=1e-4, atol=1e-6)
