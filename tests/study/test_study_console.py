import io

import pytest
from kdist.study.console import Pace, Progress
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
