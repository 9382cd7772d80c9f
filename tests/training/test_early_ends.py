"""Runs that end before their time: signals, a loss that is not finite, a full disk, no memory.

All in one process, on the small network of `sent_signals.py`.
"""

import json
import resource
import signal

import keras
import pytest
import tensorflow as tf
from kdist.errors import TrainingError, UserError
from kdist.processes.process_exit import is_out_of_memory
from kdist.signals import ENDING_SIGNALS
from kdist.training import model_and_data
from kdist.training.config import TrainConfig
from kdist.training.run import train
from kdist.training.run_record import read_run
from sent_signals import PHASES, STEPS, problems_of, small_model

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        *((phase, signal.SIGTERM) for phase in PHASES),
        # Other signals are handled as SIGTERM; where nothing was trained, by their names.
        *(("start", number) for number in ENDING_SIGNALS if number != signal.SIGTERM),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_leaves_what_was_trained_whole(phase, number, tmp_path, capsys):
    assert problems_of(phase, number, tmp_path / "run") == []
    if PHASES[phase] is None:
        assert f"kdist: interrupted by {number.name}" in capsys.readouterr().err


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Runs of the small network, in the folder `run`."""
    monkeypatch.setattr(model_and_data, "make_model", small_model)

    def run(*callbacks, **values):
        settings = {"dataset": "sample", "subset": 32 * STEPS, "depth": 10, "width": 1}
        config = TrainConfig(
            **{**settings, "replicas": 1, "epochs": 2, "run_dir": str(tmp_path / "run"), **values}
        )
        return train(config, callbacks=callbacks, announce=lines.append, verbose=0)

    lines = []
    run.lines = lines
    run.folder = tmp_path / "run"
    return run


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


class At(keras.callbacks.Callback):
    """Does something once, before a step of an epoch, both from 1."""

    def __init__(self, epoch, step, do):
        super().__init__()
        self.at = (epoch, step)
        self.do = do

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch + 1) == self.at:
            self.do(self.model)


def poison(model):
    model.layers[-1].bias.assign([float("nan")] * 10)


def test_a_signal_is_in_the_result_and_said(small):
    send = At(2, 2, lambda model: signal.raise_signal(signal.SIGTERM))
    result = small(send)
    assert (result.interrupted, result.signal, result.epochs) == (True, signal.SIGTERM, 1)
    summary = json.loads((small.folder / "summary.json").read_text())
    assert (summary["interrupted"], summary["signal"]) == (True, "SIGTERM")
    assert [line for line in small.lines if line.startswith("Interr")] == [
        "Interrupted: saving the model trained so far.",
        f"Interrupted by SIGTERM: the run is saved in {small.folder}",
    ]


def test_a_loss_that_is_not_finite_ends_the_run_at_its_batch(small):
    trained = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: trained.append(1)
    )
    result = small(At(2, 2, poison), count)
    assert (result.diverged.epoch, result.diverged.step) == (2, 2)
    assert len(trained) == STEPS + 2
    assert (result.epochs, result.interrupted, result.signal) == (1, False, None)
    assert names_in(small.folder) == ["config.json", "history.csv", "summary.json"]
    run = read_run(small.folder)
    assert run.summary["diverged"] == {"epoch": 2, "step": 2}
    assert len(run.epochs) == run.summary["epochs"] == 1
    assert run.summary["val_accuracy"] == result.history["val_accuracy"][0]


def test_a_run_that_diverges_in_its_first_epoch_can_be_read(small):
    small(At(1, 1, poison))
    assert read_run(small.folder).epochs == []


@pytest.fixture
def little_room():
    """Files can grow to so many bytes, as on a full disk; the others are smaller."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_without_room_for_the_model(small, little_room):
    words = r"cannot write .*/run/model\.keras: File too large; free disk space"
    with pytest.raises(UserError, match=words):
        small()
    assert names_in(small.folder) == ["config.json", "history.csv"]
    assert len(read_run(small.folder, unfinished=True).epochs) == 2


def test_a_disk_without_room_for_an_epoch(small, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("csv.DictWriter.writerow", full)
    words = r"cannot write .*/run/history\.csv: No space left on device; free disk space"
    with pytest.raises(UserError, match=words):
        small()


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        tf.errors.InternalError(None, None, "Dst tensor is not initialized."),
        MemoryError("Unable to allocate 12.3 GiB"),
    ],
)
def test_out_of_memory_is_a_line_and_leaves_nothing(small, error):
    words = r"^out of memory: lower --batch-size \(now 64\) or --val-batch-size \(now 32\), or make"
    with pytest.raises(TrainingError, match=words):
        small(At(1, 2, raising(error)), batch_size=64)
    assert not small.folder.exists()


def test_out_of_memory_keeps_the_epochs_before_it(small):
    with pytest.raises(TrainingError):
        small(At(2, 1, raising(MemoryError())))
    assert len((small.folder / "history.csv").read_text().splitlines()) == 2


def test_other_errors_stay_as_they_are(small):
    for error in (ValueError("no"), tf.errors.InternalError(None, None, "no such kernel")):
        assert not is_out_of_memory(error)
        with pytest.raises(type(error), match="no"):
            small(At(1, 1, raising(error)))
