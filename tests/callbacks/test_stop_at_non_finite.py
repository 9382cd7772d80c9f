import functools
import math

import keras
import numpy as np
import pytest
from kdist.callbacks import PrintThroughput, StopAtNonFinite
from tiny_training import STEPS, tiny_fit, tiny_model


class Poison(keras.callbacks.Callback):
    """Makes the weights NaN before a step, and counts executions."""

    def __init__(self, epoch, step):
        super().__init__()
        self.at = (epoch, step)
        self.trained = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch + 1) == self.at:
            weight = self.model.layers[-1].bias
            weight.assign(np.full(weight.shape, math.nan))

    def on_train_batch_end(self, batch, logs=None):
        self.trained += 1


class Log(keras.callbacks.Callback):
    """Logs values as a step of the model's user might."""

    def __init__(self, **values):
        super().__init__()
        self.values = values

    def on_train_batch_end(self, batch, logs=None):
        logs.clear()
        logs.update(self.values)


@functools.cache
def poisoned_model(**options):
    """One for all fits with these options, as its steps are traced once, and its first weights."""
    model = tiny_model(**options)
    return model, model.get_weights()


def stopped(epoch=1, step=2, *, more=(), **options):
    """A fit whose weights are NaN from a step on: what stopped it, the counts, the history."""
    model, weights = poisoned_model(**options)
    model.set_weights(weights)
    poison, stop = Poison(epoch, step), StopAtNonFinite(verbose=0)
    history = tiny_fit([poison, stop, *more], model=model)
    return stop, poison, history


@pytest.mark.parametrize("replicas", [None, 1, 2])
@pytest.mark.parametrize(("epoch", "step"), [(1, 1), (2, 2), (3, STEPS)])
def test_it_stops_at_the_batch_under_any_strategy(replicas, epoch, step):
    stop, count, history = stopped(epoch, step, replicas=replicas)
    assert (stop.found.epoch, stop.found.step) == (epoch, step)
    assert stop.found.name == "loss"
    assert math.isnan(stop.found.value)
    assert str(stop.found) == f"loss was nan in epoch {epoch}, step {step}"
    assert count.trained == (epoch - 1) * STEPS + step
    assert len(history["loss"]) == epoch


@pytest.mark.parametrize(("step", "last"), [(1, 2), (3, 3)])
def test_of_several_steps_per_execution_it_names_the_last(step, last):
    """The second execution has one step only."""
    stop, _, _ = stopped(1, step, steps_per_execution=2)
    assert stop.found.step == last


def test_values_of_the_validation_are_none_of_a_model():
    seen = []
    after = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    _, _, history = stopped(2, 1, more=[after])
    assert math.isfinite(history["val_loss"][0])
    for values in (seen[1], {name: column[1] for name, column in history.items()}):
        assert math.isnan(values["val_accuracy"])
        assert math.isnan(values["val_loss"])


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [1.0, math.inf]])
def test_infinite_losses_and_losses_of_each_sample_count(value):
    stop = StopAtNonFinite(verbose=0)
    tiny_fit([Log(loss=value), stop])
    assert (stop.found.epoch, stop.found.step) == (1, 1)
    assert not math.isfinite(stop.found.value)


@pytest.mark.parametrize(
    ("logs", "found"),
    [
        ({"loss": 1.0, "d_loss": math.nan}, None),
        ({"accuracy": math.nan, "d_loss": 1.0, "g_loss": math.inf}, "g_loss"),
    ],
)
def test_which_values_are_looked_at(logs, found):
    stop = StopAtNonFinite(verbose=0)
    tiny_fit([Log(**logs), stop], epochs=1)
    assert (stop.found and stop.found.name) == found


def test_the_next_fit_is_not_stopped():
    stop, _, _ = stopped()
    tiny_fit([stop], epochs=2)
    assert stop.found is None


def test_it_says_where_and_what_to_do(capsys):
    tiny_fit([Log(loss=math.nan), StopAtNonFinite()])
    line = "Training stopped, as loss was nan in epoch 1, step 1: lower the learning rate\n"
    assert capsys.readouterr().out == line


def test_others_see_the_epoch_end():
    throughput = PrintThroughput(verbose=0)
    stopped(2, 1, more=[throughput])
    assert throughput.steps == 1
