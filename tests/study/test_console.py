import io

import keras
import keras_tuner
import numpy as np
import pytest
from kdist.study.console import Pace, Progress
from kdist.study.search_oracles import make_oracle, total_trials
from kdist.study.search_tuner import ReportProgress
from rich.console import Console


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_time_left_follows_the_pace_since_the_start(clock):
    pace = Pace(done=2, clock=clock)
    clock.now = 30.0
    assert pace.time_left(2, total=10) == ""  # nothing was done yet
    assert pace.time_left(4, total=10) == "about 1.5 minutes left"
    assert pace.time_left(9.5, total=10) == "about 2 seconds left"
    assert pace.time_left(10, total=10) == ""
    assert pace.time_left(4, total=None) == ""


def test_without_a_terminal_a_line_per_epoch_and_trial_with_the_time_left(clock):
    lines = []
    with Progress(lines.append, total=4, ended=1, clock=clock) as progress:
        progress.begin("trial 0007", "width 4")
        clock.now = 10.0
        progress.update(0.25, "epoch 1/2")
        progress.end_epoch(0.5, "epoch 1/2: val_accuracy 0.75")
        clock.now = 24.0
        progress.end_epoch(1.0, "epoch 2/2: val_accuracy 0.5")
        progress.end("val_accuracy 0.75")
        progress.begin("trial 0008", "width 8")
        clock.now = 30.0
        progress.end("failed: out of memory")
    assert lines == [
        "trial 0007: width 4",
        "trial 0007: epoch 1/2: val_accuracy 0.75, about 10 seconds left",
        "trial 0007: epoch 2/2: val_accuracy 0.5",
        "trial 0007: val_accuracy 0.75 (24.0 seconds); 2 of 4 trials, about 48 seconds left",
        "trial 0008: width 8",
        "trial 0008: failed: out of memory (6.0 seconds); 3 of 4 trials, about 15 seconds left",
    ]


def test_on_a_terminal_bars_for_the_search_and_the_trial(clock):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    lines = []
    with Progress(lines.append, total=4, console=console, clock=clock) as progress:
        progress.begin("trial 0", "width 4")
        clock.now = 30.0
        progress.update(0.5, "epoch 1/2")
        progress._live.refresh()
        progress.end_epoch(0.75, "epoch 2/2: val_accuracy 0.5")
        progress._live.refresh()
    shown = file.getvalue()
    assert lines == ["trial 0: width 4"]
    assert "trials" in shown
    assert "trial 0, epoch 1/2" in shown
    assert "about 30 seconds left" in shown  # of the trial
    assert "about 3.5 minutes left" in shown  # of the search
    assert "trial 0, epoch 2/2: val_accuracy 0.5" in shown


def report(executions=1, **options):
    """The calls of a fit of two epochs after the first, of two steps each."""
    calls = []

    class Calls:
        update = staticmethod(lambda done, what: calls.append((done, what)))
        end_epoch = update

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = ReportProgress(
        Calls, objective="val_loss", execution=executions - 1, executions=executions
    )
    x = np.zeros((4, 1), "float32")
    model.fit(x, x, batch_size=2, verbose=0, callbacks=[callback], **options)
    return calls


def test_a_trial_that_begins_later_is_done_at_its_last_epoch():
    assert report(initial_epoch=1, epochs=3) == [
        (0.25, "epoch 2/3"),
        (0.5, "epoch 2/3"),
        (0.5, "epoch 2/3: loss 0"),
        (0.75, "epoch 3/3"),
        (1.0, "epoch 3/3"),
        (1.0, "epoch 3/3: loss 0"),
    ]


def test_executions_share_a_trial_and_its_objective_is_named():
    x = np.zeros((4, 1), "float32")
    calls = report(executions=2, epochs=1, validation_data=(x, x))
    assert calls[0] == (0.75, "execution 2/2, epoch 1/1")
    assert calls[-1] == (1.0, "execution 2/2, epoch 1/1: val_loss 0")


@pytest.mark.parametrize(
    ("kind", "max_trials", "total"),
    [("random", 7, 7), ("hyperband", None, None), ("hyperband", 5, 5)],
)
def test_the_total_is_the_number_of_trials_that_the_oracle_makes(kind, max_trials, total, tmp_path):
    """Counted by asking for trials, each of which ends at once."""
    objective = keras_tuner.Objective("val_loss", "min")
    oracle = make_oracle(kind, objective=objective, max_trials=max_trials, max_epochs=9)
    oracle._set_project_dir(str(tmp_path), "search")
    hp = keras_tuner.HyperParameters()
    hp.Float("x", 0.0, 1.0)
    oracle.update_space(hp)
    made = 0
    while (trial := oracle.create_trial("tuner")).status == "RUNNING":
        made += 1
        oracle.update_trial(trial.trial_id, {"val_loss": float(made)})
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
    assert total_trials(oracle) == made
    assert total in (None, made)
