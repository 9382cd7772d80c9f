"""What is seen of a fit, and what of one that is only rehearsed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.assessment.facts import Images, read_facts
from kdist.assessment.hooked_fit import Enough, observed_fit, rehearsed_fit, steps_per_epoch
from kdist.assessment.judgement import judge
from kdist.assessment.observer import Observer
from kdist.assessment.planned_rates import schedule_peak
from kdist.assessment.targets import targets_of
from keras.optimizers import SGD
from keras.optimizers.schedules import PiecewiseConstantDecay

X, Y = np.ones((40, 3)), np.zeros(40, int)


def batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def model(rate=0.1, **options):
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "softmax")])
    made.compile(SGD(rate), "sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    return made


class Reader(keras.utils.PyDataset):
    def __len__(self):
        return 7


GIVEN = {"steps_per_epoch": None, "batch_size": None, "validation_split": 0.0}


@pytest.mark.parametrize(
    ("make", "changes", "expected"),
    [
        (lambda: X, {}, 2),
        (lambda: X, {"batch_size": 8}, 5),
        (lambda: X, {"batch_size": 8, "validation_split": 0.5}, 3),
        (lambda: {"one": X, "other": X}, {"batch_size": 8}, 5),
        (lambda: [X, X], {"batch_size": 16}, 3),
        (batches, {}, 5),
        (batches, {"steps_per_epoch": 3}, 3),
        (lambda: batches().repeat(), {}, 1000),
        (lambda: batches().filter(lambda *_: True), {}, 1000),
        (Reader, {}, 7),
        (lambda: iter([]), {}, 1000),
    ],
    ids=range(11),
)
def test_steps_of_an_epoch(make, changes, expected):
    assert steps_per_epoch({**GIVEN, "x": make(), **changes}) == expected


def test_a_schedule_inside_an_optimizer_that_scales_the_loss():
    made = model()
    schedule = PiecewiseConstantDecay([3], [0.1, 0.4])
    made.compile(keras.optimizers.LossScaleOptimizer(SGD(schedule)), "mse")
    assert schedule_peak(made, 10) == pytest.approx(0.4)


def observer(path, **clock):
    found = Images(name="Fashion-MNIST", training=40, test=40)
    return Observer(path, generation=2, images=lambda: found, **clock)


def test_a_list_of_callbacks_of_kerass_own_kind(tmp_path):
    made, watches = model(), observer(tmp_path / "facts.json")
    with observed_fit(watches):
        callbacks = keras.callbacks.CallbackList(add_history=True, model=made)
        made.fit(X, Y, 8, callbacks=callbacks, verbose=0)
    (epoch,) = read_facts(tmp_path / "facts.json").epochs
    assert list(epoch.rows) == [40]


def test_steps_are_counted_over_all_fits_and_the_last_is_not_begun(tmp_path):
    watches = observer(tmp_path / "facts.json")
    with observed_fit(watches), pytest.raises(Enough):
        model(0.1).fit(X, Y, 8, verbose=0)
        model(0.2).fit(X, Y, 8, epochs=4, validation_data=(X, Y), verbose=0)
        model(0.3).fit(X, Y, 8, verbose=0)
    facts = read_facts(tmp_path / "facts.json")
    assert [step for step, _ in facts.rates] == list(range(5 * len(facts.epochs)))
    assert facts.rates[4][1] == pytest.approx(0.1)
    assert facts.rates[5][1] == pytest.approx(0.2)
    assert facts.fits == 2
    assert facts.is_cut == (len(facts.epochs) < 5)


def test_fits_that_are_rehearsed(tmp_path):
    path, made = tmp_path / "facts.json", model(PiecewiseConstantDecay([2], [0.1, 0.4]))
    before = made.get_weights()
    with rehearsed_fit(path, fits=2, values={"accuracy": 0.5}), pytest.raises(Enough):
        history = made.fit(batches(), epochs=3, initial_epoch=1)
        assert history.history == {"accuracy": [0.5, 0.5]}
        made.save(tmp_path / "model.keras")
        made.fit(batches())
    for one, other in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    rates = read_facts(path).rates
    assert [step for step, _ in rates] == list(range(15))
    assert [rate for _, rate in rates] == pytest.approx([0.1] * 3 + [0.4] * 12)
    assert not (tmp_path / "model.keras").exists()
    assert "fit" not in vars(keras.Model)


def two_optimizers(schedule):
    """Which a function chooses, so that there are none before the first step."""
    kernels, biases = SGD(schedule), SGD(0.2)
    return keras.optimizers.MultiOptimizer(lambda v: biases if v.name == "bias" else kernels)


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lambda schedule: SGD(schedule, gradient_accumulation_steps=2), 0.1),
        (two_optimizers, 0.2),
    ],
)
def test_rates_of_optimizers_that_are_not_as_simple(make, first, tmp_path):
    """A step that only accumulates is one to a schedule, too; the largest of several rates."""
    schedule, path = PiecewiseConstantDecay([2], [0.1, 0.4]), tmp_path / "facts.json"

    def fit():
        made = model()
        made.compile(make(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
        made.fit(X, Y, 8, epochs=2, verbose=0)

    with observed_fit(observer(path)):
        fit()
    seen = read_facts(path)
    with rehearsed_fit(path, fits=1, values={}), pytest.raises(Enough):
        fit()
    assert read_facts(path).rates == seen.rates
    assert [step for step, _ in seen.rates] == list(range(10))
    assert [rate for _, rate in seen.rates] == pytest.approx([first] * 3 + [0.4] * 7)
    assert seen.planned_peak == pytest.approx(0.4)


def test_an_optimizer_without_a_rate_that_can_be_read_does_not_end_the_program(tmp_path):
    class Odd(SGD):
        @property
        def learning_rate(self):
            return tf.constant([0.1, 0.2])  # for each class

    made, path = model(), tmp_path / "facts.json"
    made.compile(Odd(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    with observed_fit(observer(path)):
        made.fit(X, Y, 8, verbose=0)
    facts = read_facts(path)
    assert (facts.rates, len(facts.epochs)) == ([], 1)


@pytest.mark.parametrize(
    ("step_seconds", "epochs", "line", "found"),
    [
        (50, 0, 0, "it has not completed an epoch of model.fit in 120 seconds"),
        (20, 1, 1, "140.0 seconds, and not yet met"),
    ],
)
def test_the_time_is_over_amid_an_epoch(step_seconds, epochs, line, found, tmp_path):
    """What is left of the epoch is not trained, and its part is not judged as an epoch."""
    made, path, seconds = model(0.0), tmp_path / "facts.json", [0.0]

    def tick(batch, logs=None):
        seconds[0] += step_seconds

    with observed_fit(observer(path, clock=lambda: seconds[0])), pytest.raises(Enough):
        ticks = keras.callbacks.LambdaCallback(on_train_batch_end=tick)
        made.fit(X, Y, 8, epochs=9, callbacks=[ticks], validation_data=(X, Y + 1), verbose=0)
        assert int(made.optimizer.iterations.numpy()) == 120 // step_seconds + 2
        made.fit(X, Y, 8, verbose=0)
    facts = read_facts(path)
    assert len(facts.epochs) == epochs
    assert facts.is_cut
    lines = judge(facts, facts, targets_of(2, "Fashion-MNIST"), replicas=1)
    assert lines[line].found == found
