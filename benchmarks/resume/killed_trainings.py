"""`kill -9` at any instant of a training that is resumed: does it end the same?"""

import functools
import random
import time
from pathlib import Path
from typing import Any

from .candidates import Candidate
from .forked import Forked, result_of
from .trainings import STEPS, finish, largest_difference, train

EPOCHS = 5
_KILLS_OF_ONE = 5


def measure(
    candidate: Candidate, folder: Path, *, data: str, kills: int, expected: dict[str, Any]
) -> str:
    """Kill trainings five times each, and compare each with the one that was not killed.

    Args:
        candidate: Saves and resumes.
        folder: An empty folder.
        data: One of `trainings.DATA`.
        kills: How many, of all trainings.
        expected: From `uninterrupted`.

    Returns:
        How many of the trainings were bit for bit equal, and what was not.
    """
    draw = random.Random(data)  # noqa: S311 - no secret
    equal, problems, done = 0, [], 0
    trainings = max(1, round(kills / _KILLS_OF_ONE))
    for number in range(trainings):
        here = folder / str(number)
        training = functools.partial(
            train, data=data, replicas=2, epochs=EPOCHS, candidate=candidate, folder=here
        )
        here.mkdir(parents=True)
        for _ in range(min(_KILLS_OF_ONE, kills - done)):
            _kill(training, draw)
            done += 1
        found = finish(training, epochs=EPOCHS)
        problem = difference(found, expected["result"], here, expected["folder"])
        equal += not problem
        problems += [problem] if problem else []
    different = "; ".join(dict.fromkeys(problems))
    return f"{equal} of {trainings}" + (f" ({different})" if problems else "")


def uninterrupted(folder: Path, *, data: str) -> dict[str, Any]:
    """Train without a kill and without checkpoints."""
    folder.mkdir(parents=True)
    training = functools.partial(train, data=data, replicas=2, epochs=EPOCHS, candidate=None)
    found = result_of(functools.partial(training, folder=folder))
    if "error" in found:
        raise RuntimeError(found["error"])
    return {"result": found, "folder": folder}


def difference(found: dict[str, Any], expected: dict[str, Any], here: Path, there: Path) -> str:
    """Say in what two trainings differ; empty where they do not."""
    if "error" in found:
        return str(found["error"])
    if found == expected:
        return ""
    parts = []
    if found["arrays"] != expected["arrays"]:
        parts.append(f"weights differ by up to {largest_difference(here, there):.1g}")
    missing = len(expected["epochs"]) - len(found["epochs"])
    if missing:
        parts.append(f"{missing} of {len(expected['epochs'])} epochs missing in the history")
    elif found["history"] != expected["history"]:
        parts.append("another history")
    if found["callbacks"] != expected["callbacks"]:
        parts.append("callbacks begin anew")
    return ", ".join(parts)


def _kill(training: Any, draw: random.Random) -> None:
    """Kill a process of the training, in or between its steps or as it begins."""
    steps = draw.randint(0, 2 * EPOCHS * STEPS // (_KILLS_OF_ONE + 1))
    with Forked(training) as process:
        if process.receive() != "ready":
            return  # it cannot even begin, which its end will say
        step = 0.05
        for _ in range(steps):
            began = time.perf_counter()
            if not isinstance(process.receive(), int):
                return  # it has ended
            step = min(step, time.perf_counter() - began)
        time.sleep(draw.uniform(0, 2 * step))
        process.kill()
