import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import Accuracies, tiny_fit, traced_model

from kdist.callbacks import StopAtAccuracy
from kdist.errors import UserError


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


@given(
    rights=st.lists(st.integers(0, 20), max_size=30),
    needed=st.integers(0, 19),
    patience=st.integers(1, 4),
)
def test_it_agrees_with_a_search_for_the_row(rights, needed, patience):
    marks = "".join("x" if right > needed else "." for right in rights)
    found = marks.find("x" * patience)
    callback = StopAtAccuracy(needed / 20, patience, verbose=0)
    # Keras computes the share in float32, which may lie above the same share in float64.
    epochs = accuracies(*(float(np.float32(right) / np.float32(20)) for right in rights))
    assert run(callback, epochs) == (None if found < 0 else found + patience)


def test_the_default_is_0_85_in_two_epochs():
    callback = StopAtAccuracy()
    assert (callback.targets, callback.patience) == ({"val_accuracy": 0.85}, 2)


def test_fit_stops_and_says_so_at_the_first_epoch(capsys):
    history = tiny_fit([Accuracies([0.9] * 5), StopAtAccuracy(patience=1)], epochs=5)
    assert len(history["loss"]) == 1
    assert capsys.readouterr().out == "Early stopping after epoch 1\n"


def test_all_of_several_targets_have_to_be_beaten_in_one_epoch():
    targets = {"val_accuracy": 0.5, "accuracy": 0.7}
    pairs = [(0.6, 0.6), (0.4, 0.8), (0.6, 0.8), (0.6, 0.8)]
    epochs = [{"val_accuracy": first, "accuracy": second} for first, second in pairs]
    assert run(StopAtAccuracy(targets), epochs) == 4


def test_a_missing_accuracy_names_what_there_is_and_how_to_mend_it():
    with pytest.raises(UserError) as error:
        tiny_fit([StopAtAccuracy()], validate=False)
    message = str(error.value)
    assert "waits for val_accuracy, but epoch 1 reported accuracy, loss:" in message
    assert 'metrics=["accuracy"]' in message
    assert "validation_data" in message
    with pytest.raises(UserError, match="reported loss, val_loss:"):
        tiny_fit([StopAtAccuracy()], model=traced_model(metrics=()))


def test_epochs_without_validation_neither_count_nor_interrupt_the_row():
    history = tiny_fit(
        [Accuracies([None, 0.9, None, 0.9, None]), StopAtAccuracy(validation_freq=2)],
        model=traced_model(metrics=()),
        epochs=5,
        validate=False,
    )
    assert len(history["loss"]) == 4


def test_stock_validation_freq():
    stop = StopAtAccuracy(target=0.0, validation_freq=2, verbose=0)
    tiny_fit([stop], epochs=6, validation_freq=2)
    assert stop.stopped_epoch == 4


def test_once_validated_an_epoch_without_validation_is_no_error():
    values = [0.9, None, None, 0.9]
    callbacks = [Accuracies(values), StopAtAccuracy()]
    history = tiny_fit(callbacks, epochs=4, validate=False)
    assert len(history["loss"]) == 4


def test_validation_that_never_comes_is_an_error_at_the_epoch_it_was_due():
    stop = StopAtAccuracy(validation_freq=3)
    with pytest.raises(UserError, match="epoch 3 reported accuracy, loss"):
        tiny_fit([stop], epochs=6, validate=False)


def test_a_training_metric_is_due_in_every_epoch():
    with pytest.raises(UserError, match="waits for top_5, but epoch 1"):
        tiny_fit([StopAtAccuracy({"top_5": 0.5}, validation_freq=3)], validate=False)


def test_the_row_goes_on_in_a_resumed_run():
    first = StopAtAccuracy(patience=3)
    assert run(first, accuracies(0.9, 0.9)) is None
    resumed = StopAtAccuracy(patience=3)
    resumed.set_state(first.get_state())
    assert run(resumed, accuracies(0.9)) == 1


def test_a_second_fit_begins_a_new_row():
    callback = StopAtAccuracy()
    assert run(callback, accuracies(0.9)) is None
    assert run(callback, accuracies(0.9)) is None
    assert run(callback, accuracies(0.9, 0.9)) == 2
    assert run(callback, accuracies(0.1)) is None
    assert not callback.reached


@pytest.mark.parametrize("target", [85, 1, 1.0, -0.1, math.nan, "0.85", None, True])
def test_a_target_that_no_accuracy_can_beat_is_refused(target):
    with pytest.raises(UserError, match=r"target for val_accuracy is .*0\.85"):
        StopAtAccuracy(target)


def test_no_target_is_refused():
    with pytest.raises(UserError, match="target is empty"):
        StopAtAccuracy({})


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "2", None, True])
@pytest.mark.parametrize("name", ["patience", "validation_freq"])
def test_counts_are_integers_of_at_least_1(name, value):
    with pytest.raises(UserError, match=f"{name} is .* at least 1"):
        StopAtAccuracy(**{name: value})
