"""Fail a worker of a training at random instants: does the restarted training end the same?

    python -m benchmarks.worker_failures --each 20                      # about an hour
    python -m benchmarks.worker_failures --each 1 --kinds SIGSTOP
    python -m benchmarks.worker_failures --each 10 --kinds elastic

Each training has two workers, started by `kdist launch --max-restarts 1`. A worker, the chief or
not, gets SIGKILL, SIGSTOP or SIGTERM, or raises an error. With `elastic`, a training has four
workers with a shard each, started by `kdist launch --elastic`; first one of four, then one of the
remaining two workers gets SIGKILL. The final weights and history are compared bit for bit with an
undisturbed training. Prints for each kind the number of equal trainings, and the seconds from the
last failure until another worker has an error, and until all workers have ended.
"""

import argparse
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .measure import Table, format_spread, make_parser

ELASTIC = "elastic"
KINDS = ("SIGKILL", "SIGSTOP", "exception", "SIGTERM", ELASTIC)
WORKERS, SHARDS, STEPS, EPOCHS = 2, 4, 25, 3
_SHOWN_LINES = 30  # of the output of a training that failed
_LAST = EPOCHS * STEPS - 5  # the last step in which a worker may fail


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A training with a worker that failed, and how the training ended.

    Attributes:
        problem: The difference from the undisturbed training; empty if there is none.
        noticed: Seconds from the last failure until another worker had an error, or `None`.
        ended: Seconds from the last failure until all workers had ended.
    """

    problem: str
    noticed: float | None
    ended: float


def main() -> None:
    """Print a row for each kind of failure, or be a worker."""
    parser = make_parser(__doc__)
    parser.add_argument("--each", type=int, default=3, help="trainings for each kind of failure")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        folder, *numbers = options.train
        train(Path(folder), *map(int, numbers))
        return
    draw = random.Random(options.seed)  # noqa: S311 - no secret
    columns = ["failure", "equal, bit for bit", "others notice, s", "all have ended, s"]
    table = Table(*columns, file=options.json)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            failures = list(measure_failures(Path(folder), kind, options.each, draw))
        for failure in failures:
            print(f"{kind}: {failure.problem}" if failure.problem else "", end="", file=sys.stderr)
        equal = sum(not failure.problem for failure in failures)
        noticed = [failure.noticed for failure in failures if failure.noticed is not None]
        table.add(
            kind,
            f"{equal} of {len(failures)}",
            format_spread(noticed, ".1f") if noticed else "they were ended first",
            format_spread([failure.ended for failure in failures], ".1f"),
        )


def measure_failures(folder: Path, kind: str, count: int, draw: random.Random) -> Iterator[Failure]:
    """Fail a worker in each of several trainings, and compare with an undisturbed training.

    Raises:
        RuntimeError: The undisturbed training fails.
    """
    is_elastic = kind == ELASTIC
    whole = folder / "whole"
    training = Training(whole, is_elastic=is_elastic)
    if code := training.finish():
        raise RuntimeError(f"the undisturbed training failed: {training.last_lines(code)}")
    for number in range(count):
        # Workers fail equally often; with `elastic`, early enough for the second failure.
        failures = [(number % WORKERS, draw.randint(1, _LAST))]
        if is_elastic:
            failures = [(number % SHARDS, draw.randint(1, _LAST // 2))]
            failures += [(draw.randrange(2), draw.randint(1, _LAST // 2))]
        raises = failures[0] if kind == "exception" else (-1, -1)
        run_folder = folder / f"{number}"
        training = Training(run_folder, is_elastic=is_elastic, raises=raises)
        noticed, ended = training.fail(kind, failures, delay=draw.uniform(0, 0.02))
        code = training.finish()
        problem = training.last_lines(code) if code else describe_difference(run_folder, whole)
        yield Failure(problem=problem, noticed=noticed, ended=ended)


class Training:
    """A training under `kdist launch`.

    Args:
        folder: Folder for checkpoints, result and output.
        is_elastic: Whether the training continues with fewer workers instead of a restart.
        raises: The worker that raises an error, and the step; -1 for none.
    """

    def __init__(
        self, folder: Path, *, is_elastic: bool, raises: tuple[int, int] = (-1, -1)
    ) -> None:
        folder.mkdir(parents=True)
        program = ["-m", "benchmarks.worker_failures", "--train", str(folder)]
        program += [str(SHARDS if is_elastic else 0), *map(str, raises)]
        options = ["--elastic"] if is_elastic else ["--max-restarts", "1"]
        workers = str(SHARDS if is_elastic else WORKERS)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kdist", "launch", *options, "--workers", workers, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._log = (folder / "output.log").open("w", encoding="utf-8")

    def fail(
        self, kind: str, failures: Sequence[tuple[int, int]], *, delay: float
    ) -> tuple[float | None, float]:
        """In each attempt, wait until a worker reaches a step, and let the worker fail.

        Returns:
            The seconds from the last failure until another worker had an error, and until the
            launcher has ended all workers.
        """
        pending, failed_at, noticed = list(enumerate(failures)), float("nan"), None
        for line in self._lines():
            if not pending and line.startswith("kdist launch:"):
                break
            line_match = re.fullmatch(r"\[(\d+)\] (step|noticed) (\d+) (\d+) (\d+)", line.strip())
            if not line_match:  # half a line, or a line of the launcher
                continue
            worker, attempt, process, step = (int(line_match[group]) for group in (1, 3, 4, 5))
            if line_match[2] == "noticed":
                if not pending and noticed is None and worker != failures[-1][0]:
                    noticed = time.monotonic() - failed_at
                continue
            if not pending:
                continue
            wanted_attempt, (wanted_worker, wanted_step) = pending[0]
            if (attempt, worker) == (wanted_attempt, wanted_worker) and step >= wanted_step:
                if kind != "exception":
                    time.sleep(delay)
                    os.kill(process, signal.Signals["SIGKILL" if kind == ELASTIC else kind])
                failed_at = time.monotonic()
                pending.pop(0)
        return noticed, time.monotonic() - failed_at

    def finish(self) -> int:
        """Wait for the end, and return the exit code."""
        for _ in self._lines():
            pass
        self._log.close()
        return self._process.wait()

    def last_lines(self, code: int) -> str:
        """Return the exit code and the end of the output, which shows the cause."""
        lines = Path(self._log.name).read_text(encoding="utf-8").splitlines()
        return "\n    ".join([f"exit code {code}", *lines[-_SHOWN_LINES:]])

    def _lines(self) -> Iterator[str]:
        for line in self._process.stdout or ():
            self._log.write(line)
            yield line


def describe_difference(run_folder: Path, undisturbed: Path) -> str:
    """Describe the difference between the results of two trainings; empty if they are equal."""
    if not (run_folder / "trained.npz").exists():
        return "not trained to its end"
    with (
        np.load(run_folder / "trained.npz") as arrays,
        np.load(undisturbed / "trained.npz") as expected,
    ):
        if sorted(arrays) != sorted(expected):
            return "another history"
        different = [n for n in expected if arrays[n].tobytes() != expected[n].tobytes()]
    return f"{len(different)} of {len(expected)} arrays differ" if different else ""


# A worker


def train(folder: Path, shards: int, worker: int, raises_in: int) -> None:
    """Train on this worker, and save the weights and the history."""
    import kdist
    import keras
    from kdist.callbacks import Checkpoint

    strategy = kdist.MultiWorkerMirroredStrategy(shards=shards or None)
    keras.utils.set_random_seed(1)
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(16 * STEPS, 16)).astype("float32"), draws.integers(0, 4, 16 * STEPS)
    model = strategy.build(make_network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)
    model.compile(optimizer, loss, metrics=["accuracy"])
    attempt = os.environ["KDIST_RESTART_COUNT"]
    raises = attempt == "0" and strategy.worker == worker
    steps = make_step_printer(attempt, raises_in if raises else -1)
    # The chief alone has the folder.
    checkpoints = folder / "checkpoints" if strategy.is_chief else "/dev/null/none"
    try:
        history = model.fit(
            x,
            y,
            batch_size=16,
            epochs=EPOCHS,
            validation_data=(x[:64], y[:64]),
            verbose=0,
            callbacks=[steps, Checkpoint(checkpoints, every_steps=3, verbose=0)],
        )
    except BaseException:
        print("noticed", attempt, os.getpid(), 0, flush=True)
        raise
    if strategy.is_chief:
        values = {str(i): value for i, value in enumerate(model.get_weights())}
        values |= {f"history/{name}": np.array(v) for name, v in history.history.items()}
        np.savez(folder / "trained.npz", **values)


def make_network() -> Any:
    """Return a model with dropout and batch norm."""
    import keras

    layers = keras.layers
    normalized = [layers.Dense(32), layers.BatchNormalization(), layers.ReLU()]
    return keras.Sequential([keras.Input((16,)), *normalized, layers.Dropout(0.3), layers.Dense(4)])


def make_step_printer(attempt: str, raises_in: int) -> Any:
    """Return a callback that prints each step, and raises an error in step `raises_in`."""
    import keras

    class StepPrinter(keras.callbacks.Callback):
        on_chief_only = False
        stops_in_epoch = False
        step = 0

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            """Do nothing: steps are counted by process."""

        def on_train_batch_end(self, *_: object, **__: object) -> None:
            self.step += 1
            print("step", attempt, os.getpid(), self.step, flush=True)
            if self.step == raises_in:
                raise RuntimeError("a mistake of mine")

    return StepPrinter()


if __name__ == "__main__":
    main()
