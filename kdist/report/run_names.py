"""What a report calls runs and sweeps: by their folders, or by what differs between them."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ..charts.formatting import MISSING
from ..runs.run_record import RunRecord
from ..runs.text import sanitize_text
from ..sweep.sweep_record import SweepRecord
from ..training.model_name import model_name
from ..training.networks import SIZES
from .csv_measurements import CsvMeasurements
from .search_record import SearchRecord
from .settings_diff import DERIVED, settings_of

# `kdist train` and `kdist sweep` name a folder so where the user does not.
_DATED = re.compile(r"(sweep-)?\d{4}-\d{2}-\d{2}-\d{6}(-\d+)?")

# Numbers for what has the same settings.
_RUN, _SWEEP = "{name}, run {number}", "{name} ({number})"

_WORDS: Mapping[str, Callable[[str], str]] = {
    "model": str,
    "replicas": lambda value: f"{value} replica{'' if value == '1' else 's'}",
    "batch_size": lambda value: f"batch {value}",
    "optimizer": str,
    "base_lr": lambda value: f"lr {value}",
    "epochs": lambda value: f"{value} epoch{'' if value == '1' else 's'}",
    "precision": str,
    "dataset": str,
    "data": str,
    "device": str,
}
_MAIN = ("model", "replicas", "batch_size")
"""Part of a name wherever they differ, and the whole name of runs that do not differ."""

# These are named wherever they differ, others where names would be the same without them.
_FIRST = (*_MAIN, "optimizer", "base_lr")


_Record = TypeVar("_Record", RunRecord, SweepRecord, SearchRecord, CsvMeasurements)


def is_dated(path: Path) -> bool:
    """Whether the folder has the name that kdist gave it: the date and time."""
    return _DATED.fullmatch(path.name) is not None


def name_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Name runs after what differs, unless the user named their folders; mark how they ended."""
    own = {run.path: run.name for run in distinguish([r for r in runs if not is_dated(r.path)])}
    words = differences([_about(run) for run in runs])
    names = _unique((own.get(run.path, what) for run, what in zip(runs, words, strict=True)), _RUN)
    return [
        dataclasses.replace(run, name=name + _mark(run))
        for run, name in zip(runs, names, strict=True)
    ]


def _mark(run: RunRecord) -> str:
    return "" if run.status.is_complete else f" ({run.status.word})"


def _about(run: RunRecord) -> dict[str, str]:
    settings = settings_of(run)
    about = {"model": model_name(run.settings)}
    about |= {name: settings[name] for name in _FIRST if name in settings}
    # What follows from other settings says nothing new.
    in_name = SIZES | {"network"}
    others = {k: v for k, v in settings.items() if k not in in_name | DERIVED}
    return about | others


def differences(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Describe each of several settings by where it differs from the others.

    Args:
        settings: The settings of each run, the most telling ones first.

    Returns:
        The words, the same for equal settings.

    Example:
        >>> differences([{"model": "WRN-10-1", "seed": "0"}, {"model": "WRN-10-1", "seed": "1"}])
        ['seed 0', 'seed 1']
    """
    names = list(dict.fromkeys(name for one in settings for name in one))
    chosen: list[str] = []
    kinds = 1
    for name in names:
        now = len({tuple(one.get(n) for n in (*chosen, name)) for one in settings})
        differs = len({one[name] for one in settings if name in one}) > 1
        if differs and (now > kinds or name in _FIRST):
            chosen.append(name)
            kinds = now
    usual = {name: _usual([one[name] for one in settings if name in one]) for name in chosen}
    shown = [
        [n for n in chosen if n in one and (n in _MAIN or one[n] != usual[n])] for one in settings
    ]
    return [
        ", ".join(_in_words(name, one[name]) for name in names or [n for n in _MAIN if n in one])
        for one, names in zip(settings, shown, strict=True)
    ]


def _usual(values: Sequence[str]) -> str | None:
    """Return the value that more than half have, which names need not say."""
    value, number = Counter(values).most_common(1)[0]
    return value if number > len(values) / 2 else None


def _in_words(name: str, value: str) -> str:
    plain = name.replace("_", " ")
    if value in ("no", MISSING):
        return f"no {plain}"
    if name in _WORDS:
        return _WORDS[name](value)
    return plain if value == "yes" else f"{plain} {value}"


def _unique(names: Iterable[str], numbered: str) -> list[str]:
    """Number the names that come several times, by a format of `name` and `number`."""
    names = list(names)
    counts, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        several = numbered.format(name=name, number=seen[name])
        found.append(several if counts[name] > 1 else name)
    return found


def distinguish(records: Sequence[_Record]) -> list[_Record]:
    """Give records of the same name as much of their path as distinguishes them."""
    counts = Counter(record.name for record in records)
    places = [record.path.resolve().parts for record in records]
    named = []
    for record, parts in zip(records, places, strict=True):
        length = 1
        if counts[record.name] > 1:
            while length < len(parts) and sum(p[-length:] == parts[-length:] for p in places) > 1:
                length += 1
            name = sanitize_text("/".join(parts[-length:]))
            named.append(dataclasses.replace(record, name=name))
        else:
            named.append(record)
    return named


def name_sweeps(sweeps: Sequence[SweepRecord]) -> list[SweepRecord]:
    """Name sweeps after their kind and model, unless the user named their folders."""
    own = {one.path: one.name for one in distinguish([s for s in sweeps if not is_dated(s.path)])}
    words = [f"{one.kind} sweep of {model_name(one.train_settings)}" for one in sweeps]
    names = _unique(
        (own.get(one.path, what) for one, what in zip(sweeps, words, strict=True)), _SWEEP
    )
    return [
        _with_named_runs(dataclasses.replace(one, name=name))
        for one, name in zip(sweeps, names, strict=True)
    ]


def _with_named_runs(sweep: SweepRecord) -> SweepRecord:
    """Name the runs of a sweep after the settings that it varied."""
    rows = [row for row in sweep.rows if row["name"] in sweep.runs]
    columns = list(dict.fromkeys((*sweep.experiment.setting, *sweep.experiment.axes)))
    from ..charts.series import series_names  # imports Altair

    words = series_names(rows, columns) if len(rows) > 1 else [row["name"] for row in rows]
    names = dict(zip((row["name"] for row in rows), _unique(words, _RUN), strict=True))
    runs = {
        point: dataclasses.replace(run, name=names[point] + _mark(run))
        for point, run in sweep.runs.items()
    }
    return dataclasses.replace(sweep, runs=runs)


def with_sweep_name(sweep: SweepRecord) -> SweepRecord:
    """Put the name of a sweep before those of its runs."""
    runs = {
        point: dataclasses.replace(run, name=f"{sweep.name}: {run.name}")
        for point, run in sweep.runs.items()
    }
    return dataclasses.replace(sweep, runs=runs)
