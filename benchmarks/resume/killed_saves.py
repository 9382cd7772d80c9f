"""`kill -9` during saves back to back: is the newest committed checkpoint right?"""

import random
import time
from pathlib import Path
from typing import Any

from .candidates import Candidate
from .candidates.base import number_of
from .forked import Forked, Say


def measure(candidate: Candidate, folder: Path, *, kills: int) -> str:
    """Kill processes that save, each of which continues from what the one before has left.

    Args:
        candidate: Saves.
        folder: An empty folder.
        kills: How many.

    Returns:
        In how many the newest committed checkpoint was right, and what was left over.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    problems: list[str] = []
    strays: list[str] = []
    committed: int | None = None
    home = folder
    for number in range(kills + 1):
        with Forked(lambda say, home=home: _save_on_and_on(candidate, home, say)) as process:
            found = process.receive() or {"error": "the process crashed"}
            if number and (problem := _problem(found, committed)):
                problems.append(problem)
            strays = found.get("strays", strays)
            if "error" in found:  # nothing continues from there: begin anew
                home, committed = folder.with_name(f"{folder.name}-{number}"), None
            elif number < kills:
                committed = _kill_amid_a_save(process, draw)
    return _summary(kills, problems, strays)


def _kill_amid_a_save(process: Forked, draw: random.Random) -> int:
    """Let it save some checkpoints, and kill it at any instant of the next."""
    saves = draw.randint(2, 4)
    began = time.perf_counter()
    sent = [process.receive() for _ in range(saves)]
    time.sleep(draw.uniform(0, 1.1) * (time.perf_counter() - began) / saves)
    numbers = [one for one in [*sent, *process.kill()] if isinstance(one, int)]
    if len(numbers) < saves:
        raise RuntimeError(f"a process could not save: {sent}")
    return max(numbers)


def _problem(found: dict[str, Any], committed: int | None) -> str:
    if "error" in found:
        return str(found["error"])
    if committed is not None and found["number"] not in (committed, committed + 1):
        return f"{found['number']} where {committed} was committed"
    return ""


def _save_on_and_on(candidate: Candidate, folder: Path, say: Say) -> None:
    values = candidate.values(folder)
    number = number_of(values.restore())
    say({"number": number, "strays": values.strays() if folder.exists() else []})
    number = number or 0
    while True:
        number += 1
        values.save(number)
        say(number)


def _summary(kills: int, problems: list[str], strays: list[str]) -> str:
    why = f" ({problems[0].partition(':')[0]})" if problems else ""
    left = f"{len(strays)} files left over" if strays else "nothing left over"
    return f"{kills - len(problems)} of {kills}{why}, {left}"
