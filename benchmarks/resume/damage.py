"""Damaged files: is the checkpoint before taken?"""

import collections
import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

from .candidates import Candidate
from .candidates.base import WrongValuesError, number_of
from .forked import Forked, Say, result_of

_GENERATIONS = 3
_FELL_BACK = "the one before"


@dataclasses.dataclass(frozen=True)
class _Damage:
    """What is done to a file of the newest checkpoint.

    Attributes:
        kind: "flip", "truncate", "empty" or "lose".
        place: From 0 to 1: which byte of all files, or which file.
        bit: Which bit of the byte.
    """

    kind: str
    place: float
    bit: int = 0

    def apply(self, files: list[Path]) -> None:
        """Damage a file."""
        if self.kind == "flip":
            offset = int(self.place * sum(path.stat().st_size for path in files))
            for path in files:
                if offset < path.stat().st_size:
                    break
                offset -= path.stat().st_size
            content = bytearray(path.read_bytes())
            content[offset] ^= 1 << self.bit
            path.write_bytes(content)
            return
        position = self.place * len(files)
        path = files[int(position)]
        if self.kind == "lose":
            path.unlink()
        else:
            kept = int(position % 1 * path.stat().st_size) if self.kind == "truncate" else 0
            path.write_bytes(path.read_bytes()[:kept])


def measure(candidate: Candidate, folder: Path, *, flips: int, losses: int) -> dict[str, str]:
    """Damage the newest of several checkpoints again and again.

    Args:
        candidate: Saves and restores.
        folder: An empty folder.
        flips: How often one bit of any byte is flipped.
        losses: How often a file is truncated, emptied or lost, in turn.

    Returns:
        By kind, how often the checkpoint before was taken, and what happened otherwise.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    whole = folder / "whole"
    saved = result_of(lambda _: _save(candidate, whole))
    if saved is not None:
        raise RuntimeError(f"{candidate.title} cannot save: {saved}")
    kinds = {
        "flips": [_Damage("flip", draw.random(), draw.randrange(8)) for _ in range(flips)],
        "losses": [
            _Damage(("truncate", "empty", "lose")[i % 3], draw.random()) for i in range(losses)
        ],
    }
    return {name: _summary(_outcomes(candidate, whole, kind)) for name, kind in kinds.items()}


def _save(candidate: Candidate, folder: Path) -> None:
    values = candidate.values(folder)
    for number in range(1, _GENERATIONS + 1):
        values.save(number)


def _outcomes(candidate: Candidate, whole: Path, damages: list[_Damage]) -> list[str]:
    outcomes: list[str] = []
    while len(outcomes) < len(damages):
        left = damages[len(outcomes) :]
        with Forked(lambda say, left=left: _read(candidate, whole, left, say)) as process:
            outcomes += [one for one in process if isinstance(one, str)]
        if len(outcomes) < len(damages):  # it died of this one
            outcomes.append("the process crashed")
    return outcomes


def _read(candidate: Candidate, whole: Path, damages: list[_Damage], say: Say) -> None:
    damaged = whole.with_name("damaged")
    for damage in damages:
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(whole, damaged)
        damage.apply(candidate.values.newest(damaged))
        say(_outcome(candidate, damaged))


def _outcome(candidate: Candidate, folder: Path) -> str:
    try:
        number: Any = number_of(candidate.values(folder).restore())
    except WrongValuesError:
        return "wrong values"
    except Exception:
        return "an error"
    if number is None:
        return "begins anew"
    return "no effect" if number == _GENERATIONS else _FELL_BACK


def _summary(outcomes: list[str]) -> str:
    counts = collections.Counter(outcomes)
    taken = counts.pop(_FELL_BACK, 0)
    others = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    return f"{taken} of {len(outcomes)}" + (f" ({others})" if others else "")
