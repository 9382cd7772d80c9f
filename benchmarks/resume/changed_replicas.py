"""A training that is killed and resumed on other numbers of replicas: how far off does it end?"""

import functools
from pathlib import Path
from typing import Any

from .candidates import Candidate
from .forked import Forked, result_of
from .trainings import STEPS, finish, largest_difference, train

EPOCHS = 4
# Each process is killed after so many steps; the last one ends the training, on one replica. Two
# reach the end of an epoch, where the peers save.
_KILLED_AFTER = {1: STEPS + 2, 2: STEPS + 1, 4: STEPS // 2, 3: STEPS // 2}


def measure(candidate: Candidate, folder: Path) -> str:
    """Train on 1, 2, 4, 3 and 1 replicas.

    Args:
        candidate: Saves and resumes.
        folder: An empty folder.

    Returns:
        The largest difference of a weight from those of one replica without a kill.
    """
    expected, killed = folder / "expected", folder / "killed"
    options: dict[str, Any] = {"data": "own pipeline", "epochs": EPOCHS}
    whole = result_of(
        functools.partial(train, replicas=1, candidate=None, folder=expected, **options)
    )
    killed.mkdir(parents=True)
    training = functools.partial(train, candidate=candidate, folder=killed, **options)
    for replicas, steps in _KILLED_AFTER.items():
        with Forked(functools.partial(training, replicas=replicas)) as process:
            for _ in range(1 + steps):
                process.receive()
            process.kill()
    found = finish(functools.partial(training, replicas=1), epochs=EPOCHS)
    if "error" in found:
        return str(found["error"])
    epochs = len(whole["epochs"]) - len(found["epochs"])
    lost = f", {epochs} of {EPOCHS} epochs missing in the history" if epochs else ""
    return f"{largest_difference(killed, expected):.1g}{lost}"
