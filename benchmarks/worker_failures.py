"""How long the other worker trains on in vain when one of two fails.

    python -m benchmarks.worker_failures                 # three times each
    python -m benchmarks.worker_failures --rounds 1 --only SIGSTOP

Prints for each way to fail the seconds until the other worker has an error, and until `kdist
launch` has ended. Half a minute for each, on two cores.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time

from .interleaved import spread

FAILURES = {
    "exception": (1, None),
    "SIGTERM": (1, signal.SIGTERM),
    "kill -9": (1, signal.SIGKILL),
    "kill -9 of the chief": (0, signal.SIGKILL),
    "SIGSTOP": (1, signal.SIGSTOP),
    "SIGSTOP of the chief": (0, signal.SIGSTOP),
}
_LONGEST_SECONDS = 300


def train(fails: bool) -> None:
    """What each worker does."""
    import kdist
    import keras
    import numpy as np

    strategy = kdist.MultiWorkerMirroredStrategy()

    class Event(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, *_: object, **__: object) -> None:
            if batch == 4:
                print("pid", os.getpid(), flush=True)
            if batch == 30 and fails and not strategy.is_chief:
                print("failed", time.time(), flush=True)
                raise ValueError("my own mistake")

    model = strategy.build(lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    ones = np.ones((800_000, 4), "float32")
    try:
        model.fit(ones, ones[:, :1], batch_size=8, epochs=9, verbose=0, callbacks=[Event()])
    except BaseException:
        print("noticed", time.time(), flush=True)
        raise


def measure(name: str) -> tuple[float | None, float]:
    """Return the seconds until the other worker had an error, if it saw one, and until the end."""
    worker, number = FAILURES[name]
    program = ["-m", "benchmarks.worker_failures", "--train"]
    command = [sys.executable, "-m", "kdist", "launch", "--workers", "2", *program]
    process = subprocess.Popen(
        [*command, *["--fails"] * (number is None)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - of Popen
    pids: dict[int, int] = {}
    failed_at, noticed_at = 0.0, None
    for line in process.stdout:
        found = re.match(r"\[(\d)\] (\w+) (\S+)", line)
        if found is None:
            continue
        rank, what = int(found[1]), found[2]
        if what == "pid":
            pids[rank] = int(found[3])
            if len(pids) == 2 and number is not None:
                failed_at = time.time()
                os.kill(pids[worker], number)
        elif what == "failed":
            failed_at = float(found[3])
        elif what == "noticed" and rank != worker:
            noticed_at = float(found[3])
    process.wait(timeout=_LONGEST_SECONDS)
    return None if noticed_at is None else noticed_at - failed_at, time.time() - failed_at


def main() -> None:
    """Print a row for each way to fail."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", choices=FAILURES)
    options.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--fails", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.train:
        return train(given.fails)
    for name in [given.only] if given.only else FAILURES:
        rows = [measure(name) for _ in range(given.rounds)]
        texts = []
        for column in zip(*rows, strict=True):
            known = [value for value in column if value is not None]
            texts.append(spread(known, ".1f") if known else "it was ended first")
        print(f"| {name} | {' | '.join(texts)} |", flush=True)
    return None


if __name__ == "__main__":
    main()
