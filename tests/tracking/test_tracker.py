"""The base classes of trackers."""

import copy
import math

import keras
import pytest
from kdist.tracking.tracker import BatchTracking, BestValues, Tracker, ended


class Recorder(keras.callbacks.Callback):
    """Notes what it is called with; fails where it is told to."""

    def __init__(self, fails_at=""):
        super().__init__()
        self.fails_at = fails_at
        self.calls = []

    def _note(self, name, *values):
        self.calls.append((name, *values))
        if name == self.fails_at:
            raise OSError("no space left\non device")

    def on_train_begin(self, logs=None):
        self._note("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self._note("epoch", epoch)

    def on_epoch_end(self, epoch, logs=None):
        logs["more"] = 1
        self.seconds = logs["seconds"]
        self._note("epoch end", epoch, logs["loss"])

    def on_train_end(self, logs=None):
        self._note("end")


class Recording(Tracker):
    def __init__(self, recorder, **options):
        super().__init__("The recorder", **options)
        self.recorder = recorder
        self.closed = []

    def begin(self):
        return [self.recorder]

    def close(self, exit_code):
        self.closed.append(exit_code)


def fit(tracker, epochs=2):
    tracker.set_params({"steps": 4})
    tracker.on_train_begin()
    for epoch in range(epochs):
        logs = {"loss": 0.5}
        tracker.on_epoch_begin(epoch)
        tracker.on_epoch_end(epoch, logs)
        assert logs == {"loss": 0.5}
    tracker.on_train_end()


def test_the_seconds_are_since_training_began():
    times = iter([5.0, 7.5, 9.0])
    recorder = Recorder()
    fit(Recording(recorder, clock=lambda: next(times)))
    assert recorder.seconds == 4.0


def test_a_fit_is_handed_on_and_closed_once():
    tracker = Recording(Recorder())
    fit(tracker)
    tracker.on_train_end()
    calls = [("begin",), ("epoch", 1), ("epoch end", 1, 0.5), ("epoch", 2), ("epoch end", 2, 0.5)]
    assert tracker.recorder.calls == [*calls, ("end",)]
    assert tracker.closed == [0]


@pytest.mark.parametrize("fails_at", ["begin", "epoch", "epoch end", "end"])
def test_a_failure_is_one_warning_and_the_tracker_is_off(fails_at):
    tracker = Recording(Recorder(fails_at))
    with pytest.warns(UserWarning, match="The recorder could not") as warned:
        fit(tracker)
    assert [str(w.message) for w in warned] == [
        f"The recorder could not {doing} (OSError: no space left): training continues without it"
        for doing in [
            {"begin": "start", "epoch": "begin an epoch", "epoch end": "write an epoch"}.get(
                fails_at, "end"
            )
        ]
    ]
    assert [call[0] for call in tracker.recorder.calls].count(fails_at) == 1
    assert tracker.closed == [1]


def test_a_tracker_is_good_for_another_fit():
    tracker = Recording(Recorder("begin"))
    with pytest.warns(UserWarning, match="could not start"):
        fit(tracker)
    tracker.recorder = Recorder()
    fit(tracker)
    assert tracker.closed == [1, 0]


@pytest.mark.parametrize(("error", "code"), [(None, 0), (KeyboardInterrupt, 255), (MemoryError, 1)])
def test_a_fit_that_is_left_early_is_closed(error, code):
    tracker = Recording(Recorder())
    tracker.on_train_begin()
    if error is None:
        with ended([keras.callbacks.Callback(), tracker]):
            pass
    else:
        with pytest.raises(error), ended([tracker]):
            raise error
    assert tracker.closed == [code]


class Written(Tracker):
    def __init__(self):
        super().__init__("The writer")
        self.steps = []

    def scalars(self, axis, step, values):
        self.steps.append(step)
        assert (axis, values) == ("batch", {"loss": step, "learning_rate": 0.25})


class Model:
    optimizer = keras.optimizers.SGD(0.25)


@pytest.mark.parametrize("every", [1, 3, 4, 100])
@pytest.mark.parametrize("execution", [1, 3, 8])
@pytest.mark.parametrize("known", [True, False])
def test_batches_are_written_when_so_many_steps_are_trained(every, execution, known):
    tracker = Written()
    batches = copy.deepcopy(BatchTracking(every, [tracker]))
    (tracker,) = batches.trackers
    batches.set_model(Model())
    batches.set_params({"steps": 7 if known else None})
    tracker.on_train_begin()
    batches.on_train_begin()
    trained, expected = 0, []
    for epoch in range(3):
        batches.on_epoch_begin(epoch)
        if epoch == 2:  # resumed amid the epoch, after an execution
            state = batches.get_state()
            batches.set_state(state)
            batches.on_train_begin()
        for begin in range(0, 7, execution):
            # Keras names the last step that the execution could have had.
            last = begin + execution - 1 if known else min(begin + execution, 7) - 1
            before, trained = trained, 7 * epoch + min(last + 1, 7)
            expected += [trained] * (trained // every > before // every)
            batches.on_train_batch_begin(begin)
            batches.on_train_batch_end(last, {"loss": trained})
    assert tracker.steps == expected


def test_a_fit_after_a_resumed_one_is_another():
    tracker = Tracker("board")
    seen = []
    tracker.begin = lambda: seen.append(tracker.continues) or []
    tracker.set_state({"seconds": 1.0})
    for _ in range(2):
        tracker.on_train_begin()
        tracker.on_train_end()
    assert seen == [True, False]


def test_accuracies_are_highest_losses_lowest_and_nothing_else_is_compared():
    best = BestValues()
    best.update(1, {"loss": 2.0, "top_5_accuracy": 0.5, "learning_rate": 1.0, "lossless": 1.0})
    found = best.update(2, {"loss": 1.0, "top_5_accuracy": 0.25})
    assert found == {"best_loss": 1.0, "best_top_5_accuracy": 0.5, "best_epoch": 2}


def test_the_best_epoch_is_the_first_of_the_best_validation_accuracy():
    best = BestValues()
    for epoch, accuracy in enumerate([math.nan, 0.5, 0.75, 0.75, 0.5, math.nan], start=1):
        found = best.update(epoch, {"loss": 1 / epoch, "val_accuracy": accuracy})
    assert found == {"best_loss": 1 / 6, "best_val_accuracy": 0.75, "best_epoch": 3}


def test_nothing_to_compare_has_no_best_epoch():
    assert BestValues().update(1, {"mae": 1.0, "val_accuracy": math.nan}) == {}
