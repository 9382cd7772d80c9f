import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.callbacks import StopAtAccuracy
from kdist.runs.record import Met, Streak, beats, met_target


def rows(*accuracies):
    return [
        {"epoch": at + 1.0, "seconds": 10.0 * at, "val_accuracy": accuracy}
        for at, accuracy in enumerate(accuracies)
    ]


class Model:
    stop_training = False


@given(
    st.lists(st.sampled_from([0.4, 0.5, 0.6, None]), max_size=12), st.integers(1, 3), st.booleans()
)
def test_as_the_callback_counts(accuracies, patience, both):
    targets = {"val_accuracy": 0.5} | ({"accuracy": 0.45} if both else {})
    epochs = [row | {"accuracy": row["val_accuracy"]} for row in rows(*accuracies)]
    callback = StopAtAccuracy(targets, patience, verbose=0, clock=lambda: 0.0)
    callback.set_model(Model())
    callback.on_train_begin()
    met = None
    for at, accuracy in enumerate(accuracies):
        if accuracy is not None:
            callback.on_epoch_end(at, {"val_accuracy": accuracy, "accuracy": accuracy})
        if callback.reached:
            met = Met(callback.met_epoch, 10.0 * (callback.met_epoch - 1))
            break
    assert met_target(epochs, targets, patience=patience) == met


def test_to_reach_the_target_exactly_is_not_to_beat_it():
    rounded = float(np.float32(0.85))  # above 0.85 in float64
    assert rounded > 0.85
    assert met_target(rows(rounded), {"val_accuracy": 0.85}, patience=1) is None


@pytest.mark.parametrize("targets", [{}, {"accuracy": 0.1}])
def test_without_a_target_or_its_column_nothing_is_met(targets):
    assert met_target(rows(0.9, 0.9), targets, patience=1) is None


def test_a_table_without_times_tells_no_time():
    assert met_target([{"val_accuracy": 0.9}], {"val_accuracy": 0.5}, patience=1) is None


def test_a_streak_begins_at_its_first_epoch():
    streak = Streak()
    told = []
    for epoch, beaten in enumerate([False, True, True, False, True], start=1):
        streak = streak.after(beaten, epoch=epoch, seconds=10.0 * epoch)
        told.append((streak.length, streak.epoch, streak.seconds))
    assert told == [(0, None, None), (1, 2, 20.0), (2, 2, 20.0), (0, None, None), (1, 5, 50.0)]


def test_an_accuracy_that_is_no_number_beats_nothing():
    assert not beats({"val_accuracy": float("nan")}, {"val_accuracy": 0.0})
    assert beats({"val_accuracy": 0.6, "loss": 9.0}, {"val_accuracy": 0.5})
