import io
import math
import statistics

import pytest
from kdist.study.sweep_kinds import time_to_target
from kdist.study.tables import ResultsTable, Spread, print_table
from rich.console import Console


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([3.0, None, 1.0, 2.0], "2.0 (1.0-3.0)"),
        ([3.0], "3.0"),  # one value shows no spread
    ],
)
def test_a_spread_in_words(values, text):
    assert Spread.of(values).format(".1f") == text


def test_without_a_value_there_is_no_spread():
    assert Spread.of([None]) is None


def time_spread(durations, reached):
    times = [
        time_to_target({"seconds_to_target": time, "reached_target": met, "diverged": False})
        for time, met in zip(durations, reached, strict=True)
    ]
    return Spread.of(times, statistics.median_low)


@pytest.mark.parametrize(
    ("durations", "reached", "expected"),
    [
        ([30.0, 50.0, 5.0], [True, True, False], "50 (30-never)"),
        ([30.0, 50.0, None], [True, True, False], "50 (30-never)"),
        ([5.0, 5.0], [False, True], "5 (5-never)"),
        ([5.0, 1.0, 1.0], [True, False, False], "never"),
    ],
)
def test_a_run_that_never_got_there_is_slower_than_all(durations, reached, expected):
    assert time_spread(durations, reached).format("g") == expected


def test_a_run_that_diverged_never_got_there():
    row = {"seconds_to_target": 3.0, "reached_target": True, "diverged": True}
    assert time_to_target(row) == math.inf


def printed(columns, row, width=80):
    console = Console(file=io.StringIO(), width=width)
    print_table(console, ResultsTable(title="T", columns=columns, rows=[row], note="Best first."))
    return console.file.getvalue()


def test_a_table_fits_the_console():
    words = ", ".join(f"setting{number} 0.123" for number in range(12))
    text = printed(["Trial", "Settings"], ["0", words])
    assert max(map(len, text.splitlines())) <= 80
    assert "setting11" in text
    assert text.endswith("Best first.\n")


def test_numbers_in_narrow_tables_are_whole():
    row = ["12", "0.1900", "1,234.5 (1,200.5-1,300.5)", "12", "label_smoothing 0.05"]
    columns = ["Trial", "val_accuracy", "Step, ms", "Epochs", "Settings"]
    text = printed(columns, row, width=64)
    assert max(map(len, text.splitlines())) <= 64
    for word in " ".join([*columns, *row]).split():
        assert word in text.split()
