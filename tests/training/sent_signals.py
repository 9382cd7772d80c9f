"""Ctrl-C, SIGTERM and SIGHUP at a phase of a run of `kdist train`, and the files that it leaves.

The run sends itself the signal: while it prepares, in its first batch, in a validation, and
half-way through the file of the model; at the last two also twice, which ends at once.
"""

import contextlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import kdist.cli
import kdist.training.run as training_run
import keras
import numpy as np
from kdist.errors import UserError
from kdist.training import model_and_data
from kdist.training.run_record import read_run
from small_network import small_model

SMALL = "--dataset sample --subset 96 --depth 10 --width 1 --batch-size 32 --replicas 1"
STEPS = 3  # of an epoch
FILES = {"config.json", "history.csv", "summary.json", "model.keras"}

# Epochs and steps that are trained when the signal is heeded; `None` where nothing is to be left.
PHASES: dict[str, tuple[int, int] | None] = {
    "start": None,
    "first batch": (0, 1),
    "validation": (0, STEPS),
    "saving": (2, 2 * STEPS),
    "first batch, twice": None,
    "saving, twice": (2, 2 * STEPS),
}


class Send(keras.callbacks.Callback):
    """Sends signals from within a fit, at the first batch of training or of validation."""

    def __init__(self, phase: str, send: Callable[[], None]) -> None:
        super().__init__()
        self.phase = phase
        self.send: Callable[[], None] | None = send

    def on_train_batch_begin(self, *_: Any, **__: Any) -> None:
        """Send, in the phase of training."""
        self._send_in("first batch")

    def on_test_batch_begin(self, *_: Any, **__: Any) -> None:
        """Send, in the phase of validation."""
        self._send_in("validation")

    def _send_in(self, phase: str) -> None:
        if self.send is not None and self.phase.startswith(phase):
            send, self.send = self.send, None
            send()


@contextlib.contextmanager
def sending(phase: str, number: int) -> Iterator[None]:
    """Have runs in this process get a signal in one of `PHASES`."""

    def send() -> None:
        for _ in range(2 if phase.endswith("twice") else 1):
            os.kill(os.getpid(), number)

    def making(*arguments: Any) -> keras.Model:
        if phase == "start":
            send()
        return small_model(*arguments)

    def writing(archive: zipfile.ZipFile, name: Any, *arguments: Any, **options: Any) -> Any:
        if phase.startswith("saving") and name == "config.json":
            send()
        return opening(archive, name, *arguments, **options)

    def train(config: Any, **options: Any) -> Any:
        quiet = {"verbose": 0, "announce": lambda _: None}
        return training(config, callbacks=[Send(phase, send)], **quiet, **options)

    opening, training = zipfile.ZipFile.open, training_run.train
    with (
        mock.patch.object(model_and_data, "make_model", making),
        mock.patch.object(training_run, "train", train),
        mock.patch.object(zipfile.ZipFile, "open", writing),
    ):
        yield


def problems_of(phase: str, number: int, folder: Path) -> list[str]:
    """Run `kdist train` in this process, send it a signal in a phase, and look at what is left."""
    arguments = ["kdist", "train", *SMALL.split(), "--epochs", "2", "--run-dir", str(folder)]
    code = 0
    with sending(phase, number), mock.patch.object(sys, "argv", arguments):
        try:
            kdist.cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    problems = [f"exit code {code}"] if code != 128 + number else []
    trained = PHASES[phase]
    if trained is None:
        return problems + ([f"left {folder}"] if folder.exists() else [])
    problems += _problems_of_files(folder, *trained, has_model=phase != "saving, twice")
    return problems + [f"child {line}" for line in children()]


def _problems_of_files(folder: Path, epochs: int, steps: int, *, has_model: bool) -> list[str]:
    names = {path.name for path in folder.iterdir()}
    if names != (FILES if has_model else FILES - {"model.keras", "summary.json"}):
        return [f"files {sorted(names)}"]
    try:
        run = read_run(folder, unfinished=not has_model)
    except UserError as error:
        return [str(error)]
    problems = []
    if len(run.epochs) != epochs or run.summary["epochs"] != epochs:
        problems.append(f"{len(run.epochs)} epochs, {run.summary['epochs']} in the summary")
    if has_model:
        model = keras.models.load_model(folder / "model.keras")
        if int(model.optimizer.iterations.numpy()) != steps:
            problems.append(f"{int(model.optimizer.iterations.numpy())} steps in the model")
        if not all(np.isfinite(weight).all() for weight in model.get_weights()):
            problems.append("weights that are not finite")
    return problems


def children() -> list[str]:
    """Return the command lines of this process's children."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append(" ".join(words))
    return found
