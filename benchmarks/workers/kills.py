"""Kill a worker of a training at random instants: does the restarted training end the same?

    python -m benchmarks.workers.kills --each 20      # 80 trainings, each killed once

Each training has two workers, started by `kdist launch --max-restarts 1`; one of them, the chief or
the other, gets SIGKILL, SIGSTOP or SIGTERM, or raises an error. With `elastic`, each has four
workers with a shard each, started by `kdist launch --elastic`; one of them gets SIGKILL, and so
does one of the two that go on. The final weights and history are compared bit for bit with those of
a training of as many workers that was left alone.
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

import numpy as np

ELASTIC = "elastic"
KINDS = ("SIGKILL", "SIGSTOP", "exception", "SIGTERM", ELASTIC)
WORKERS, SHARDS, STEPS = 2, 4, 25
_SHOWN_LINES = 30  # of a training that failed
_PROGRAM = Path(__file__).with_name("killed_training.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kill:
    """How a training was killed, and how it ended.

    Attributes:
        kind: Of `KINDS`.
        at: For each attempt the worker that was killed (0 is the chief), and after which step.
        problem: What is not as in the training that was left alone; empty for none.
        seconds: From the last kill until none of the workers was left.
    """

    kind: str
    at: Sequence[tuple[int, int]]
    problem: str
    seconds: float


def measure(
    folder: Path, *, each: int, kinds: Sequence[str] = KINDS, epochs: int = 3, seed: int = 0
) -> Iterator[Kill]:
    """Kill trainings one after the other, and compare each with one that was left alone.

    Args:
        folder: An empty folder.
        each: Trainings for each kind.
        kinds: Of `KINDS`.
        epochs: Of a training.
        seed: Of the instants.

    Raises:
        RuntimeError: The training that is left alone fails.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    wholes = {kind == ELASTIC: folder / f"whole-{kind == ELASTIC}" for kind in kinds}
    for is_elastic, whole in wholes.items():
        training = _Training(whole, epochs=epochs, is_elastic=is_elastic)
        code = training.finish()
        if code:
            raise RuntimeError(
                f"a training that was left alone failed: {training.last_lines(code)}"
            )
    last = epochs * STEPS - 5  # behind it, no steps may be left
    for number in range(each):
        for kind in kinds:
            # Each worker as often.
            at = [(number % WORKERS, draw.randint(1, last))]
            if kind == ELASTIC:  # and soon enough that steps are left for the next one
                at = [(number % SHARDS, draw.randint(1, last // 2))]
                at += [(draw.randrange(2), draw.randint(1, last // 2))]
            here = folder / f"{kind}-{number}"
            training = _Training(
                here,
                epochs=epochs,
                is_elastic=kind == ELASTIC,
                fails=at[0] if kind == "exception" else (-1, -1),
            )
            seconds = training.kill(kind, at, delay=draw.uniform(0, 0.02))
            code = training.finish()
            whole = wholes[kind == ELASTIC]
            problem = training.last_lines(code) if code else _difference(here, whole)
            yield Kill(kind=kind, at=at, problem=problem, seconds=seconds)


def rows(kills: Sequence[Kill]) -> list[tuple[str, str, str]]:
    """Return for each kind how many ended bit for bit, and the longest time until all ended."""
    found = []
    for kind in dict.fromkeys(kill.kind for kill in kills):
        own = [kill for kill in kills if kill.kind == kind]
        equal = sum(not kill.problem for kill in own)
        longest = max(kill.seconds for kill in own)
        found.append((kind, f"{equal} of {len(own)}", f"{longest:.1f} s"))
    return found


class _Training:
    """A training under `kdist launch`, of which one worker is killed, or none."""

    def __init__(
        self, folder: Path, *, epochs: int, is_elastic: bool, fails: tuple[int, int] = (-1, -1)
    ) -> None:
        folder.mkdir(parents=True)
        program = [_PROGRAM, folder, epochs, STEPS, SHARDS if is_elastic else 0, *fails]
        options = ["--elastic"] if is_elastic else ["--max-restarts", "1"]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kdist", "launch", *options, "--workers"),
                *(str(SHARDS if is_elastic else WORKERS), *map(str, program)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._log = (folder / "output.log").open("w", encoding="utf-8")

    def kill(self, kind: str, at: Sequence[tuple[int, int]], *, delay: float) -> float:
        """In each attempt, wait until a worker is at a step, and kill it.

        Returns:
            The seconds from the last kill until the launcher has ended all.
        """
        left, killed_at = list(enumerate(at)), None
        for line in self._lines():
            if not left and line.startswith("kdist launch:"):
                break
            told = re.fullmatch(r"\[(\d+)\] step (\d+) (\d+) (\d+)", line.strip())
            if not told or not left:  # half a line, or of another worker
                continue
            worker, attempt, process, step = map(int, told.groups())
            if (attempt, worker) == (left[0][0], left[0][1][0]) and step >= left[0][1][1]:
                if kind != "exception":
                    time.sleep(delay)
                    name = "SIGKILL" if kind == ELASTIC else kind
                    os.kill(process, signal.Signals[name])
                killed_at = time.monotonic()
                left.pop(0)
        return float("nan") if killed_at is None else time.monotonic() - killed_at

    def finish(self) -> int:
        """Wait for the end, and return the exit code."""
        for _ in self._lines():
            pass
        self._log.close()
        return self._process.wait()

    def last_lines(self, code: int) -> str:
        """Return the exit code and the end of the output, to see why there is one."""
        lines = Path(self._log.name).read_text(encoding="utf-8").splitlines()
        return "\n    ".join([f"exit code {code}", *lines[-_SHOWN_LINES:]])

    def _lines(self) -> Iterator[str]:
        for line in self._process.stdout or ():
            self._log.write(line)
            yield line


def _difference(here: Path, whole: Path) -> str:
    if not (here / "trained.npz").exists():
        return "not trained to its end"
    with np.load(here / "trained.npz") as found, np.load(whole / "trained.npz") as expected:
        if sorted(found) != sorted(expected):
            return "another history"
        different = [n for n in expected if found[n].tobytes() != expected[n].tobytes()]
    return f"{len(different)} of {len(expected)} arrays differ" if different else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each kill, and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=3, help="trainings for each kind of kill")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    kills = []
    with tempfile.TemporaryDirectory() as folder:
        for kill in measure(
            Path(folder), each=options.each, kinds=options.kinds, seed=options.seed
        ):
            kills.append(kill)
            where = ", then ".join(f"worker {worker} after step {step}" for worker, step in kill.at)
            problem = kill.problem or "the same, bit for bit"
            print(
                f"{kill.kind} of {where}: {problem}, all ended after {kill.seconds:.1f} s",
                flush=True,
            )
    for kind, equal, longest in rows(kills):
        print(f"{kind:10} {equal:10} {longest:>8}")


if __name__ == "__main__":
    main()
