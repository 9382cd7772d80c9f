import io

from kdist.study.progress import Progress, print_line
from rich.console import Console


def make_console(width=200):
    return Console(file=io.StringIO(), width=width)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_trials_at_once_have_their_own_seconds_and_share_the_time_left():
    clock, console = Clock(), make_console()
    progress = Progress(console, noun="trial", total=5, ended=1, clock=clock)
    progress.begin("trial-1", "width 4")
    progress.begin("trial-2", "width 8")
    clock.now = 24.0
    progress.end("trial-1", "val_accuracy 0.75")
    progress.begin("trial-3", "width 2")
    clock.now = 30.0
    progress.end("trial-3", "failed: out of memory")
    progress.end("trial-2", "val_accuracy 0.5")
    assert console.file.getvalue().splitlines() == [
        "trial-1: width 4",
        "trial-2: width 8",
        "trial-1: val_accuracy 0.75 (24.0 seconds); 2 of 5 trials, about 1.2 minutes left",
        "trial-3: width 2",
        "trial-3: failed: out of memory (6.0 seconds); 3 of 5 trials, about 30 seconds left",
        "trial-2: val_accuracy 0.5 (30.0 seconds); 4 of 5 trials, about 10 seconds left",
    ]


def test_without_a_total_there_is_no_time_left():
    clock, console = Clock(), make_console()
    progress = Progress(console, noun="trial", clock=clock)
    progress.begin("trial-0")
    clock.now = 2.0
    progress.end("trial-0", "done")
    assert console.file.getvalue() == "trial-0: done (2.0 seconds)\n"


def test_on_a_terminal_lines_wrap_between_words():
    line = "trial-0: " + ", ".join(f"setting{number} 0.123456" for number in range(9))
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    print_line(console, line)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(map(str.strip, lines)) == line
    console = make_console(80)  # of a file
    print_line(console, line)
    assert console.file.getvalue() == f"{line}\n"
