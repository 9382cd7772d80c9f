"""The rows of the table: each measures all candidates, and says what it found in words."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.interleaved import spread

from . import changed_replicas, damage, first_step, killed_saves, killed_trainings, stall
from .candidates import Candidate
from .trainings import DATA

Cells = dict[str, str]
"""By the title of a candidate."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """How often each thing is done.

    Attributes:
        stalls: Saves of each candidate.
        kills_of_saves: Kills during saves.
        flips: Flipped bits.
        losses: Files truncated, emptied or lost.
        kills: Kills of a training for each kind of data.
        peers_kills: The same of a peer's.
        resumes: Resumes at each place.
    """

    stalls: int = 15
    kills_of_saves: int = 50
    flips: int = 40
    losses: int = 60
    kills: int = 20
    peers_kills: int = 5
    resumes: int = 7


QUICK = Counts(stalls=3, kills_of_saves=5, flips=5, losses=6, kills=2, peers_kills=1, resumes=2)


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        what: What was measured.
        goal: What kdist is to reach.
        cells: What was found.
    """

    what: str
    goal: str
    cells: Cells


def _saving(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    results = stall.measure(candidates, folder, rounds=counts.stalls)
    stalls, delays = {}, {}
    for title, result in results.items():
        wall, own = (list(seconds) for seconds in zip(*result["stalls"], strict=True))
        stalls[title] = f"{_milliseconds(wall)}; of work {1e3 * statistics.median(own):.0f}"
        delay = statistics.median(result["delays"])
        low, _, high = statistics.quantiles(result["delays"], n=4)
        delays[title] = f"{delay / 60:.2%} ({low / 60:.2%} to {high / 60:.2%})"
    yield Row("stall of a save, WRN-16-4, 33 MB, ms", "40", stalls)
    yield Row("cost of a save a minute (quartiles)", "0.5 %", delays)


def _killed_saves(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    kills = counts.kills_of_saves
    cells = {
        one.title: killed_saves.measure(one, folder / one.title, kills=kills) for one in candidates
    }
    yield Row(f"{kills} `kill -9` during saves back to back: newest right", "all", cells)


def _damaged(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    flips, losses = counts.flips, counts.losses
    found = {
        one.title: damage.measure(one, folder / one.title, flips=flips, losses=losses)
        for one in candidates
    }
    what = {
        "flips": f"{flips} bits flipped in the newest: the one before is taken",
        "losses": f"{losses} files of it truncated, emptied, lost: the one before is taken",
    }
    for kind, title in what.items():
        yield Row(title, "all", {name: results[kind] for name, results in found.items()})


def _killed(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    for data in DATA:
        here = folder / data
        expected = killed_trainings.uninterrupted(here / "uninterrupted", data=data)
        cells = {
            one.title: killed_trainings.measure(
                one,
                here / one.title,
                data=data,
                kills=counts.kills if one.title == "kdist" else counts.peers_kills,
                expected=expected,
            )
            for one in candidates
        }
        yield Row(f"trainings killed five times each, {data}: equal bit for bit", "all", cells)


def _replicas(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    del counts
    cells = {one.title: changed_replicas.measure(one, folder / one.title) for one in candidates}
    yield Row("1→2→4→3→1 replicas by kills: largest difference of a weight", "1e-6", cells)


def _first_step(candidates: Sequence[Candidate], folder: Path, counts: Counts) -> Iterator[Row]:
    del candidates  # the peers train the epoch again
    for data in DATA:
        found = first_step.measure(folder / data, data=data, rounds=counts.resumes)
        medians = {place: statistics.median(seconds) for place, seconds in found.items()}
        cell = ", ".join(f"{seconds:.2f} ({place})" for place, seconds in medians.items())
        yield Row(
            f"from `fit` to the first new step, beyond tracing, {data}, s", "1", {"kdist": cell}
        )


MEASURES: dict[str, Callable[[Sequence[Candidate], Path, Counts], Iterator[Row]]] = {
    "stall": _saving,
    "saves": _killed_saves,
    "damage": _damaged,
    "trainings": _killed,
    "replicas": _replicas,
    "first-step": _first_step,
}
"""By the name that the command line takes."""


def _milliseconds(seconds: list[float]) -> str:
    return spread([1e3 * one for one in seconds], ".0f")
