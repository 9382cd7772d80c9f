from pathlib import Path
from types import SimpleNamespace

import pytest
from kdist.training.config import TrainConfig, make_plan
from kdist.training.printed_lines import format_result, format_settings


class Folder:
    path = Path("runs/a [b] :smile:")


def result(run_dir, **values):
    nothing = {"images_per_sec": None, "seconds": 3600.04, "epochs": 0, "history": {}}
    return SimpleNamespace(**{**nothing, "run_dir": run_dir, **values})


def test_a_run_without_an_epoch_or_a_model_says_so(tmp_path):
    assert [line.split("  ", 2)[-1].strip() for line in format_result(result("my runs"))] == [
        "unknown, no epoch was validated",
        "unknown, no epoch was finished",
        "3,600.0 seconds",
        "not saved",
        "my runs/history.csv",
        "kdist report 'my runs'",
    ]


@pytest.mark.parametrize(
    ("history", "rows"),
    [
        (
            {"val_accuracy": [0.5, float("nan"), 0.75, 0.75]},
            {"best epoch": "3 of 4, val_accuracy 0.7500"},
        ),
        (
            {"val_accuracy": [0.5]},
            {"images/s": "90 (of one epoch, including its start)"},
        ),
    ],
)
def test_the_result_names_its_best_epoch_from_one(history, rows):
    epochs = len(history["val_accuracy"])
    lines = format_result(result("r", history=history, epochs=epochs, images_per_sec=90.0))
    for name, value in rows.items():
        assert f"  {name}" in "\n".join(lines)
        assert any(line.endswith(value) for line in lines), lines


def test_settings_show_paths_as_they_are_and_what_was_changed():
    config = TrainConfig(batch_size=8, augment=False, ema_momentum=0.9, subset=1, shift=0.0)
    plan = make_plan(config, replicas=3)
    lines = format_settings(config, plan, ("CPU:0", "CPU:1", "CPU:2"), Folder)
    assert "  run folder     runs/a [b] :smile:" in lines
    assert [line.split()[0] for line in lines[-4:]] == [
        "subset",
        "augment",
        "shift",
        "ema_momentum",
    ]
    assert lines[-4].endswith("  1 (default none)")
    assert lines[-3].endswith("  no (default yes)")
    assert lines[-2].endswith("  0.0 (default 0.2)")
    assert "  global batch   24 (8 per replica)" in lines
