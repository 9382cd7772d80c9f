"""What every callback of `kdist.callbacks` keeps, whichever there are."""

import contextlib
import copy
import functools
import inspect
import io
import itertools
import json
import pickle
import re
import shutil

import kdist.callbacks
import keras
import pytest
from kdist.callbacks import StopAtNonFinite, TrainingTelemetry
from kdist.errors import UserError
from tiny_training import FakeClock, Ticker, images, tiny_fit, traced_model

# What a class cannot do without, or does nothing without; the others are made with no argument.
ARGUMENTS = {
    "BatchNormMonitor": {"batch": images(4)},
    "Checkpoint": {"folder": "checkpoints"},
    "StopAtAccuracy": {"target": 0.0},
}

CALLBACKS = [
    value
    for _, value in inspect.getmembers(kdist.callbacks, inspect.isclass)
    if issubclass(value, keras.callbacks.Callback)
]

pytestmark = pytest.mark.parametrize("callback_class", CALLBACKS)


def make(callback_class, **options):
    """The callback on a fake clock, and the callbacks of a fit with it."""
    options = ARGUMENTS.get(callback_class.__name__, {}) | options
    if "clock" in inspect.signature(callback_class).parameters:
        options["clock"] = FakeClock()
    callback = callback_class(**options)
    return callback, on_its_clock(callback)


class Diverge(keras.callbacks.Callback):
    """For what has nothing to say as long as the loss is finite."""

    def on_train_batch_end(self, batch, logs=None):
        logs["loss"] = float("nan")


def on_its_clock(callback):
    before = [Diverge()] if isinstance(callback, StopAtNonFinite) else []
    return [*before, Ticker(getattr(callback, "clock", FakeClock())), callback]


def model_for(callback_class):
    """Return a model whose fits `TrainingTelemetry` does not trace anew."""
    return traced_model(run_eagerly=callback_class is TrainingTelemetry)


def fit(callbacks, **options):
    shutil.rmtree(ARGUMENTS["Checkpoint"]["folder"], ignore_errors=True)  # nothing is resumed
    (tested,) = [type(callback) for callback in callbacks if type(callback) in CALLBACKS]
    return tiny_fit(callbacks, **{"model": model_for(tested)} | options)


def lines_of_a_fit(callbacks, **options):
    """Return the history and the printed lines of a fit."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        history = fit(callbacks, **options)
    return history, printed.getvalue().splitlines()


@functools.cache
def fit_alone(callback_class):
    """Return the history and the lines of a new callback, which is alone in printing."""
    return lines_of_a_fit(make(callback_class)[1])


def pickled(callback):
    return pickle.loads(pickle.dumps(callback))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """For what writes a file by default."""
    monkeypatch.chdir(tmp_path)


def test_every_argument_is_a_keyword_with_a_default_that_it_accepts(callback_class):
    required = ARGUMENTS.get(callback_class.__name__, {})
    parameters = inspect.signature(callback_class).parameters
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    callback_class(**{name: required.get(name, p.default) for name, p in parameters.items()})


@pytest.mark.parametrize("keras_verbose", [1, 2])
def test_its_lines_stand_apart_from_the_progress_bar(callback_class, keras_verbose):
    _, alone = fit_alone(callback_class)
    _, beside = lines_of_a_fit(make(callback_class)[1], verbose=keras_verbose)
    assert [line for line in beside if line in alone] == alone
    following = [after for line, after in itertools.pairwise(beside) if line in alone]
    assert all(line in alone or line.startswith("Epoch ") for line in following)


def test_verbose_changes_only_what_is_printed(callback_class):
    loud, lines = fit_alone(callback_class)
    quiet, no_lines = lines_of_a_fit(make(callback_class, verbose=0)[1])
    assert lines
    assert not no_lines
    assert {name: len(values) for name, values in loud.items()} == {
        name: len(values) for name, values in quiet.items()
    }


def test_a_copy_has_the_state_but_not_the_model_and_does_what_the_original_does(callback_class):
    callback, callbacks = make(callback_class)
    before = pickled(callback)
    assert lines_of_a_fit(callbacks)[1] == fit_alone(callback_class)[1]
    callback.set_model(traced_model(replicas=2))
    after = pickled(callback)
    for copied in (after, copy.deepcopy(callback)):
        assert copied.model is None
        assert copied.get_state() == callback.get_state()
    assert callback.model is not None
    for copied in (before, after):
        assert lines_of_a_fit(on_its_clock(copied))[1] == fit_alone(callback_class)[1]


def test_a_second_fit_begins_anew(callback_class):
    _, callbacks = make(callback_class)
    lines_of_a_fit(callbacks)
    assert lines_of_a_fit(callbacks)[1] == fit_alone(callback_class)[1]


@pytest.mark.parametrize(("replicas", "steps_per_execution"), [(2, 1), (1, 3)], ids=str)
def test_replicas_and_executions(callback_class, replicas, steps_per_execution):
    _, callbacks = make(callback_class)
    model = traced_model(replicas=replicas, steps_per_execution=steps_per_execution)
    _, lines = lines_of_a_fit(callbacks, model=model)
    _, expected = fit_alone(callback_class)
    if steps_per_execution == 1:
        # What stands in brackets may count by the replica.
        assert [re.sub(r" \(.*\)", "", line) for line in lines] == [
            re.sub(r" \(.*\)", "", line) for line in expected
        ]
    else:
        assert len(lines) == len(expected)


def test_its_state_survives_json_and_is_taken_up_by_the_next_fit(callback_class):
    callback, callbacks = make(callback_class, verbose=0)
    fit(callbacks, epochs=1)
    state = json.loads(json.dumps(callback.get_state()))
    resumed, _ = make(callback_class, verbose=0)
    fresh = resumed.get_state()
    resumed.set_state(state)
    assert resumed.get_state() == state
    assert copy.deepcopy(resumed).get_state() == state
    resumed.set_model(model_for(callback_class))
    resumed.on_train_begin()
    assert resumed.get_state() == state
    resumed.on_train_begin()
    assert resumed.get_state() == fresh


def test_a_state_that_is_not_its_own_is_refused(callback_class):
    callback, _ = make(callback_class)
    with pytest.raises(UserError, match=f"{callback_class.__name__} has the keys .*get_state"):
        callback.set_state({"something": 1})


def test_a_fit_that_failed_leaves_nothing_behind(callback_class):
    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError

    _, callbacks = make(callback_class)
    with pytest.raises(RuntimeError):
        fit([*callbacks, Fail()], verbose=1)
    assert lines_of_a_fit(callbacks)[1] == fit_alone(callback_class)[1]


def test_it_leaves_an_evaluation_of_its_own_alone(callback_class, capsys):
    callback, callbacks = make(callback_class)
    model = model_for(callback_class)
    fit(callbacks, model=model)
    state = callback.get_state()
    capsys.readouterr()
    model.evaluate(*images(), verbose=0, callbacks=callbacks)
    assert callback.get_state() == state
    assert capsys.readouterr().out == ""
