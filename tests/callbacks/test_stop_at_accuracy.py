import math

import numpy as np
import pytest
from kdist.callbacks import StopAtAccuracy
from kdist.errors import UserError
from tiny_training import Accuracies, FakeClock, tiny_fit, traced_model


class Trained:
    stop_training = False


def run(callback, epochs):
    """Run epochs of given logs through a callback; the epoch after which it stops, from 1."""
    model = Trained()
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, logs in enumerate(epochs):
        callback.on_epoch_end(epoch, logs)
        if model.stop_training:
            return epoch + 1
    return None


def accuracies(*values):
    return [{"loss": 1.0, "val_accuracy": value} for value in values]


@pytest.mark.parametrize(
    ("values", "patience", "stopped"),
    [
        ((0.9,), 1, 1),
        ((0.9, 0.9), 2, 2),
        ((0.9, 0.8, 0.9, 0.8), 2, None),
        ((0.8, 0.9, 0.9, 0.9), 2, 3),
        ((0.9, 0.9, 0.8, 0.9, 0.9, 0.9), 3, 6),
        ((0.85, 0.85, 0.85), 1, None),
        ((math.nan, 0.9), 1, 2),
    ],
)
def test_it_stops_once_enough_epochs_in_a_row_beat_the_target(values, patience, stopped, capsys):
    callback = StopAtAccuracy(0.85, patience)
    assert run(callback, accuracies(*values)) == stopped
    assert callback.stopped_epoch == stopped
    assert callback.reached == (stopped is not None)
    line = f"Early stopping after epoch {stopped}\n" if stopped else ""
    assert capsys.readouterr().out == line


def test_to_reach_the_target_exactly_is_not_to_beat_it():
    rounded = float(np.float32(0.85))  # above 0.85 in float64
    assert rounded > 0.85
    assert run(StopAtAccuracy(0.85, 1), accuracies(rounded)) is None


def test_fit_stops_and_says_so_at_the_first_epoch(capsys):
    history = tiny_fit([Accuracies([0.9] * 5), StopAtAccuracy(patience=1)], epochs=5)
    assert len(history["loss"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Early stopping after epoch 1"
    assert lines[1].startswith("Target val_accuracy > 0.85 met in epoch 1 after ")


def test_all_of_several_targets_have_to_be_beaten_in_one_epoch():
    targets = {"val_accuracy": 0.5, "accuracy": 0.7}
    pairs = [(0.6, 0.6), (0.4, 0.8), (0.6, 0.8), (0.6, 0.8)]
    epochs = [{"val_accuracy": first, "accuracy": second} for first, second in pairs]
    assert run(StopAtAccuracy(targets), epochs) == 4


def test_a_missing_accuracy_names_what_there_is_and_how_to_mend_it():
    with pytest.raises(UserError, match=r'reported loss, val_loss: .*metrics=\["accuracy"\]'):
        tiny_fit([StopAtAccuracy()], model=traced_model(metrics=()))
    with pytest.raises(UserError, match="needs top_5, but epoch 1 reported accuracy, loss:"):
        tiny_fit([StopAtAccuracy({"top_5": 0.5})], validate=False)


def test_epochs_without_validation_are_skipped(capsys):
    stop = StopAtAccuracy(target=0.0, verbose=0)
    tiny_fit([stop], epochs=6, validation_freq=2)
    assert stop.stopped_epoch == 4
    tiny_fit([StopAtAccuracy()], epochs=2, validate=False)
    assert "never met in 2 epochs in a row; no epoch was validated" in capsys.readouterr().out


def test_the_row_goes_on_in_a_resumed_run():
    first = StopAtAccuracy(patience=3)
    assert run(first, accuracies(0.9, 0.9)) is None
    resumed = StopAtAccuracy(patience=3)
    resumed.set_state(first.get_state())
    assert run(resumed, accuracies(0.9)) == 1


def test_a_resumed_run_has_been_validated_before():
    first = StopAtAccuracy(0.95)
    assert run(first, [*accuracies(0.9), {"loss": 1.0}]) is None
    resumed = StopAtAccuracy(0.95)
    resumed.set_state(first.get_state())
    assert run(resumed, [{"loss": 1.0}]) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": 1}, r"target for val_accuracy is 1, .*0\.85"),
        ({"target": None}, r"target for val_accuracy is None, .*0\.85"),
        ({"target": {}}, "target is empty"),
        ({"patience": 0}, "patience is 0, .* at least 1"),
        ({"time_budget": 0}, "time_budget is 0, .*pass how many seconds"),
    ],
)
def test_arguments_that_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        StopAtAccuracy(**options)


def run_on_a_clock(callback, epochs, seconds=10.0):
    """Each epoch takes so many seconds."""
    callback.clock = clock = FakeClock()
    model = Trained()
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, logs in enumerate(epochs):
        clock.now += seconds
        callback.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    callback.on_train_end()
    return callback


def test_the_epoch_and_the_seconds_of_the_rows_first_epoch_are_told(capsys):
    callback = run_on_a_clock(StopAtAccuracy(patience=2), accuracies(0.9, 0.1, 0.9, 0.9))
    assert (callback.met_epoch, callback.met_seconds, callback.stopped_epoch) == (3, 30.0, 4)
    assert capsys.readouterr().out.splitlines() == [
        "Early stopping after epoch 4",
        "Target val_accuracy > 0.85 met in epoch 3 after 30.00 seconds",
    ]


def test_a_target_never_met_is_told_with_the_best_value(capsys):
    targets = {"val_accuracy": 0.85, "accuracy": 0.9}
    epochs = [{"val_accuracy": v, "accuracy": 0.5} for v in (0.4, math.nan, 0.86)]
    callback = run_on_a_clock(StopAtAccuracy(targets), epochs)
    assert (callback.reached, callback.met_epoch) == (False, None)
    assert capsys.readouterr().out == (
        "Target val_accuracy > 0.85, accuracy > 0.9 never met in 2 epochs in a row; best of all"
        " epochs: val_accuracy 0.8600, accuracy 0.5000\n"
    )
    run_on_a_clock(StopAtAccuracy(), [{"loss": 1.0}])
    assert "no epoch was validated" in capsys.readouterr().out


def test_the_time_budget_ends_training_at_the_end_of_an_epoch(capsys):
    callback = run_on_a_clock(StopAtAccuracy(time_budget=25), accuracies(*[0.1] * 9))
    assert (callback.stopped_epoch, callback.seconds, callback.reached) == (3, 30.0, False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Time budget of 25 seconds used up"
    assert lines[1] == "Early stopping after epoch 3"
    assert "never met" in lines[2]


def test_the_time_before_a_resumption_counts_in_the_budget():
    first = run_on_a_clock(StopAtAccuracy(time_budget=25), accuracies(0.1, 0.1))
    resumed = StopAtAccuracy(time_budget=25)
    resumed.set_state(first.get_state())
    assert run_on_a_clock(resumed, accuracies(0.1, 0.1)).stopped_epoch == 1
    assert resumed.seconds == 30.0
