"""The base classes of trackers."""

import copy
import math

import keras
import pytest
import tensorflow as tf
from kdist.tracking.tracker import BatchTracking, Tracker, close_trackers, keep_best


class Recording(Tracker):
    """Notes what is called, and fails where it is told to."""

    title = "The recorder"

    def __init__(self, folder, fails_at="", **options):
        super().__init__(folder, settings={"width": 3}, **options)
        self.fails_at = fails_at
        self.calls = []
        self.set_model(Model())

    def _note(self, name, *values):
        self.calls.append((name, *values))
        if name == self.fails_at:
            raise OSError("no space left\non device")

    def start(self, environment):
        self.seen = dict(self.sent)
        self._note("start", environment["replicas"])

    def log_values(self, axis, step, values):
        if axis == "epoch":
            self.epoch_values = dict(values)
        values["more"] = 1
        self._note(axis, step)

    def finish_run(self, exit_code):
        self._note("finish_run", exit_code)


class Model:
    optimizer = keras.optimizers.SGD(0.25)
    distribute_strategy = tf.distribute.get_strategy()


def fit(tracker, epochs=range(2)):
    tracker.set_params({"steps": 4})
    tracker.on_train_begin()
    for epoch in epochs:
        logs = {"loss": 0.5}
        tracker.on_epoch_begin(epoch)
        tracker.on_epoch_end(epoch, logs)
        assert logs == {"loss": 0.5}
    tracker.on_train_end()


def test_the_seconds_are_since_training_began(tmp_path):
    times = iter([5.0, 7.5, 9.0])
    tracker = Recording(tmp_path, clock=lambda: next(times))
    tracker.on_train_begin()
    for epoch, seconds in enumerate([2.5, 4.0]):
        tracker.on_epoch_end(epoch, {"loss": 0.5})
        assert tracker.epoch_values["seconds"] == seconds


CALLS = [("start", 1), ("epoch", 1), ("best", 1), ("epoch", 2), ("best", 2)]


def test_a_fit_is_recorded_and_finished_once(tmp_path):
    tracker = Recording(tmp_path)
    fit(tracker)
    tracker.on_train_end()
    assert tracker.calls == [*CALLS, ("finish_run", 0)]


@pytest.mark.parametrize(
    ("fails_at", "task", "effect"),
    [
        ("start", "start", "training continues without The recorder"),
        ("epoch", "write an epoch", "training continues without The recorder"),
        ("best", "write an epoch", "training continues without The recorder"),
        ("finish_run", "close its run", "its last values may be missing"),
    ],
)
def test_a_failure_is_one_warning_and_the_tracker_is_off(fails_at, task, effect, tmp_path):
    tracker = Recording(tmp_path, fails_at)
    with pytest.warns(UserWarning, match="The recorder could not") as warned:
        fit(tracker)
    assert [str(w.message) for w in warned if "recorder" in str(w.message)] == [
        f"The recorder could not {task} (OSError: no space left): {effect}"
    ]
    names = [name for name, *_ in tracker.calls]
    if fails_at == "finish_run":
        assert tracker.calls == [*CALLS, ("finish_run", 0), ("finish_run", 1)]
    else:
        assert names[names.index(fails_at) :] == [fails_at, "finish_run"]
        assert tracker.calls[-1] == ("finish_run", 1)


def test_a_tracker_is_good_for_another_fit(tmp_path):
    tracker = Recording(tmp_path, "start")
    with pytest.warns(UserWarning, match="could not start"):
        fit(tracker)
    tracker.fails_at, tracker.calls = "", []
    fit(tracker)
    assert tracker.calls == [*CALLS, ("finish_run", 0)]


@pytest.mark.parametrize(("error", "code"), [(None, 0), (KeyboardInterrupt, 255), (MemoryError, 1)])
def test_a_fit_that_is_left_early_is_finished(error, code, tmp_path):
    tracker = Recording(tmp_path)
    tracker.on_train_begin()
    if error is None:
        with close_trackers([keras.callbacks.Callback(), tracker]):
            pass
    else:
        with pytest.raises(error), close_trackers([tracker]):
            raise error
    assert tracker.calls[-1] == ("finish_run", code)


def test_what_an_earlier_process_has_written_is_not_written_again(tmp_path):
    first = Recording(tmp_path)
    fit(first)
    first.write_sent_file(id="seven")
    resumed = Recording(tmp_path)
    resumed.continues_run = True
    fit(resumed, range(1, 3))
    assert resumed.seen == {"epoch": 2, "rows": 2, "id": "seven"}
    assert resumed.calls == [("start", 1), ("epoch", 3), ("best", 3), ("finish_run", 0)]


class Written(Tracker):
    def __init__(self, folder):
        super().__init__(folder, settings={})
        self.steps = []

    def log_values(self, axis, step, values):
        self.steps.append(step)
        assert (axis, values) == ("batch", {"loss": step, "learning_rate": 0.25})


@pytest.mark.parametrize("every", [1, 3, 4, 100])
@pytest.mark.parametrize("execution", [1, 3, 8])
@pytest.mark.parametrize("known", [True, False])
def test_batches_are_written_when_so_many_steps_are_trained(every, execution, known, tmp_path):
    tracker = Written(tmp_path)
    tracker.set_model(Model())
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


def test_a_fit_after_a_resumed_one_is_another(tmp_path):
    tracker = Recording(tmp_path)
    fit(tracker)
    seen = []
    tracker.set_state({"seconds": 1.0})
    for _ in range(2):
        fit(tracker, ())
        seen.append(tracker.seen)
    assert seen == [{"epoch": 2, "rows": 2}, {}]


def test_accuracies_are_highest_losses_lowest_and_nothing_else_is_compared():
    best = {}
    keep_best(best, {"loss": 2.0, "top_5_accuracy": 0.5, "learning_rate": 1.0, "lossless": 1.0})
    keep_best(best, {"loss": 1.0, "top_5_accuracy": 0.25})
    keep_best(best, {"loss": math.nan, "top_5_accuracy": math.nan})
    assert best == {"best_loss": 1.0, "best_top_5_accuracy": 0.5}
