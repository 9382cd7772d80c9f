import io
import re

import keras
import numpy as np
import pytest
from kdist.callbacks import PrintThroughput, PrintTotalTime, StopAtAccuracy
from kdist.training.progress import EpochLines, describe_epoch, make_progress
from rich.console import Console

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\x08")


def console(**options):
    return Console(file=io.StringIO(), width=80, **options)


@pytest.fixture(scope="module")
def model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def fit(model, capsys, verbose=1, **options):
    """Train three epochs of ten steps, and return what the terminal was sent."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype("float32"), rng.integers(0, 2, 40)
    total = PrintTotalTime(verbose=0)
    shown = console(**options)
    callbacks = [
        PrintThroughput(verbose=0),
        StopAtAccuracy(0.0, patience=3),
        total,
        *make_progress(verbose, total, console=shown),
    ]
    capsys.readouterr()
    model.fit(
        x,
        y,
        batch_size=4,
        epochs=3,
        validation_data=(x, y),
        callbacks=callbacks,
        verbose=verbose,
    )
    return capsys.readouterr().out


def frames(output):
    """The texts that follow each other on the terminal's lines."""
    return [ESCAPES.sub("", frame) for frame in re.split(r"[\r\n]", output)]


def test_a_terminal_shows_kerass_bar(model, capsys):
    output = fit(model, capsys, force_terminal=True)
    bars = [frame for frame in frames(output) if "━" in frame]
    shown = re.findall(r"- (\w+):", bars[-1])
    assert shown == ["accuracy", "loss", "val_accuracy", "val_loss", "images_per_sec"]
    assert "so far" not in output


def test_lines_of_callbacks_come_below_the_epochs_own(model, capsys):
    lines = [line for line in frames(fit(model, capsys)) if line.strip()]
    assert lines[-2] == "Early stopping after epoch 3"
    assert "seconds so far" in lines[-3]


@pytest.mark.parametrize("verbose", [1, 2])
def test_a_file_gets_a_line_per_epoch_without_codes(verbose, model, capsys):
    output = fit(model, capsys, verbose=verbose)
    lines = output.splitlines()
    number = r"\d\.\d{4}"
    for epoch, line in enumerate(lines[:3], start=1):
        assert re.fullmatch(
            rf"Epoch {epoch}/3: accuracy {number}, loss {number}, val_accuracy {number},"
            rf" val_loss {number}, [\d,]+ images/s, \d+\.\d seconds so far",
            line,
        )
    assert len(lines) == 5  # and the two of `StopAtAccuracy`
    assert "\x1b" not in output
    assert "\r" not in output


def test_which_progress_is_shown_where():
    total = PrintTotalTime()

    def kinds(verbose, **options):
        return [type(one) for one in make_progress(verbose, total, console=console(**options))]

    assert kinds(0, force_terminal=True) == []
    assert kinds(1, force_terminal=True) == []
    assert kinds(1, force_jupyter=True) == []
    assert kinds(2, force_terminal=True) == [EpochLines]
    assert kinds(1) == [EpochLines]
    assert kinds(1, force_terminal=True, _environ={"TERM": "dumb"}) == [EpochLines]


def test_numbers_of_every_size_are_written_short():
    logs = {"a": 0.5, "b": 0.0, "c": 2e-5, "d": 12345.6, "e": float("nan"), "f": np.float32(-0.25)}
    assert describe_epoch(logs, 3600.04) == (
        "a 0.5000, b 0.0000, c 2.000e-05, d 12,346, e nan, f -0.2500, 3,600.0 seconds so far"
    )


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_rate_that_is_not_finite_is_left_out(rate):
    assert describe_epoch({"images_per_sec": rate}, 2.0) == "2.0 seconds so far"
