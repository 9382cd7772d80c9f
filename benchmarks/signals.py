"""Ctrl-C, SIGTERM and SIGHUP at every phase of a run: what was trained is whole on the disk.

    python -m benchmarks.signals                 # ten of each in one process: about five minutes
    python -m benchmarks.signals --rounds 1 --processes 3     # and real processes, at random times

In one process, `kdist train` of a small network sends itself the signal: while it prepares, in its
first batch, in a validation, and half-way through the file of the model; at the last two also
twice, which ends at once. Real processes are `kdist train`, `kdist sweep throughput` and `kdist
tune` with two trials at once, signalled at a random time, whose children have to end too. Prints a
line for every kind, and each thing that was not as it should be.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kdist.cli
import kdist.training.run as training_run
import keras
import numpy as np
from kdist.errors import UserError
from kdist.signals import ENDING
from kdist.training import model as training_model
from kdist.training.record import read_run

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


def small_model(_: Any, data: Any, strategy: Any, plan: Any) -> keras.Model:
    """Stands in for the WideResNet, which takes ten times as long to trace."""
    layers = [keras.Input(data.image_shape), keras.layers.Flatten()]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dense(10)]
    model = strategy.build(lambda: keras.Sequential(layers))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(plan.learning_rate), loss, metrics=["accuracy"])
    return model


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
        mock.patch.object(training_model, "make_model", making),
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
    return problems + [f"child {line}" for line in processes_of(os.getpid())]


def _problems_of_files(folder: Path, epochs: int, steps: int, *, has_model: bool) -> list[str]:
    names = {path.name for path in folder.iterdir()}
    if names != (FILES if has_model else FILES - {"model.keras"}):
        return [f"files {sorted(names)}"]
    try:
        run = read_run(folder)
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


def processes_of(parent: int) -> list[str]:
    """The command lines of a process's children."""
    return [" ".join(words) for _, above, words in _processes() if above == parent]


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Number, parent and command line of every process."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            yield int(path.name), parent, words


TUNE = "--tuner random --max-trials 4 --workers 2"
COMMANDS = {
    "train": f"train {SMALL} --epochs 200 --run-dir",
    "sweep": "sweep throughput --dataset sample --subset 96 --depth 10 --width 1"
    " --batch-sizes 16,32 --output",
    "tune": f"tune --dataset sample --subset 96 --depth 10 --width 1 {TUNE} --output",
}


def problems_of_process(command: str, number: int, folder: Path, seconds: float) -> list[str]:
    """Start a command in a process of its own, and signal it after some seconds."""
    words = [sys.executable, "-m", "kdist", *COMMANDS[command].split(), str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(number)
    _, errors = process.communicate()
    problems = [] if process.returncode in (128 + number, -number) else [errors[-300:]]
    if "Traceback" in errors:
        problems.append("a traceback")
    deadline = time.monotonic() + 10
    while (left := _naming(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)  # their starter has ended, which they notice
    problems += [f"child {line}" for line in left]
    parts = [str(path) for path in folder.rglob(".[0-9]*") if path.is_file()]
    problems += [f"part {path}" for path in parts]
    if command == "train" and folder.exists() and not (folder / "model.keras").exists():
        problems.append(f"files {sorted(path.name for path in folder.iterdir())}")
    return problems


def _naming(folder: Path) -> list[str]:
    return [" ".join(words) for _, _, words in _processes() if any(str(folder) in w for w in words)]


def _print(what: str, problems: Sequence[Sequence[str]]) -> int:
    wrong = [one for one in problems if one]
    print(
        f"{what}: {len(problems) - len(wrong)} of {len(problems)}",
        *(problem for one in wrong for problem in one),
        sep="\n  ",
    )
    return len(wrong)


def main() -> int:
    """Run what was asked for; the exit code is 1 if something was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="runs of each signal and phase")
    parser.add_argument("--processes", type=int, default=0, help="of each signal and command")
    args = parser.parse_args()
    # A shell's background jobs ignore Ctrl-C, and `nohup` SIGHUP.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    wrong = 0
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here, "run")

        def alone(problems: list[str]) -> list[str]:
            shutil.rmtree(folder, ignore_errors=True)
            return problems

        for phase in PHASES:
            for number in ENDING:
                found = [alone(problems_of(phase, number, folder)) for _ in range(args.rounds)]
                wrong += _print(f"{signal.Signals(number).name}, {phase}", found)
        draw = random.Random(0)  # noqa: S311 - no secret
        for command in COMMANDS if args.processes else ():
            for number in ENDING:
                found = [
                    alone(problems_of_process(command, number, folder, draw.uniform(0.5, 40)))
                    for _ in range(args.processes)
                ]
                wrong += _print(f"{signal.Signals(number).name}, kdist {command}", found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
