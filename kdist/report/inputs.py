"""What `kdist report` is given: runs, sweeps, searches and CSV files, read and named."""

import csv
import dataclasses
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..charts.statistics import Row
from ..charts.tables import MISSING, setting
from ..errors import UserError, error_text
from ..fields import field_names
from ..files import read_text
from ..runs.record import FILES, RunRecord, read_run
from ..runs.text import sanitize_text
from ..study.folder import STUDY_FILE
from ..study.record import GridRecord, SearchRecord, read_study
from ..training.settings import FOLDERS, SIZES, OwnModel, model_name


@dataclass(frozen=True)
class Skipped:
    """A folder or file that a report does not show.

    Attributes:
        path: The path as the reader would find it.
        reason: Why it is not shown.
    """

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path, reason: object) -> "Skipped":
        """Make one whose text can be encoded as UTF-8."""
        return cls(sanitize_text(str(path)), sanitize_text(str(reason)))


REQUIRED = ("batch_size", "images_per_sec")


@dataclass(frozen=True, kw_only=True)
class CsvMeasurements:
    """A table of measurements.

    Attributes:
        name: What the report calls it: the file's name without its ending.
        path: The file.
        rows: A measurement each, with the columns of a throughput sweep that go with it:
            `batch_size` (per replica), `replicas`, `images_per_sec`, ...
    """

    name: str
    path: Path
    rows: list[Row]


def read_csv_measurements(path: Path) -> CsvMeasurements:
    """Read a CSV file with the columns `batch_size`, `images_per_sec` and, optionally, `replicas`.

    Other columns and empty lines are ignored.

    Raises:
        UserError: It cannot be read, lacks a column or has a value that is no number above 0; the
            message names the line.
    """
    columns, lines = _read(path)
    absent = [name for name in REQUIRED if name not in columns]
    if absent:
        raise UserError(
            f"no column {' and '.join(absent)}: expected a CSV file with batch_size,"
            " images_per_sec and, optionally, replicas"
        )
    rows = [_row(line, number) for number, line in lines]
    if not rows:
        raise UserError("it has no rows of measurements")
    return CsvMeasurements(name=sanitize_text(path.stem), path=path, rows=rows)


def _read(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns, and the number and values of each line."""
    try:
        text = io.StringIO(read_text(path), newline="")
        reader = csv.DictReader(text, restval="", skipinitialspace=True)
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        return list(reader.fieldnames), [(reader.line_num, line) for line in reader]
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"not a valid CSV file: {error}") from error


def _row(line: Mapping[str, str], number: int) -> Row:
    words = {name: line[name] for name in REQUIRED} | {"replicas": line.get("replicas") or "1"}
    values = {name: _positive(name, text, number) for name, text in words.items()}
    speed = values["images_per_sec"]
    return {
        **values,
        "workers": None,
        "images_per_step": values["batch_size"] * values["replicas"],
        "images_per_sec_low": speed,
        "images_per_sec_high": speed,
        "round": None,
    }


def _positive(name: str, text: str, number: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"line {number}: {name} is {text!r}, expected a number above 0")
    return value


DERIVED = frozenset(
    {"global_batch", "learning_rate", "parameters", "training_images", "validation_images"}
)
"""Facts that follow from settings and data."""

_FACTS = (
    "global_batch",
    "learning_rate",
    "parameters",
    "data",
    "training_images",
    "validation_images",
)
_VERSION = "version of "


def settings_of(run: RunRecord) -> dict[str, str]:
    """Return the settings and facts of a run as text; those that are not known are missing."""
    values: dict[str, Any] = {k: v for k, v in run.settings.items() if k not in FOLDERS}
    values.pop("replicas", None)  # the settings may leave it open
    if values.get("model") is not None:
        values["model"] = model_name(values)
    for name in field_names(OwnModel):
        if values.get(name) is None:
            values.pop(name, None)
    facts = ("replicas", *_FACTS)
    values |= {name: run.summary[name] for name in facts if name in run.summary}
    names = run.summary.get("device_names")
    if isinstance(names, list):
        values["device"] = list(dict.fromkeys(map(str, names)))
    versions = run.summary.get("versions")
    if isinstance(versions, Mapping):
        values |= {f"{_VERSION}{name}": version for name, version in versions.items()}
    return {str(name): setting(value) for name, value in values.items()}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names whose values are not the same in all.

    A missing setting is a difference. A missing fact, such as the device of a run that was killed,
    is not known.
    """
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len(_values(name, settings)) > 1]


def _values(name: str, settings: Sequence[Mapping[str, str]]) -> set[str | None]:
    values = {one.get(name) for one in settings}
    is_fact = name in ("replicas", "device", *_FACTS) or name.startswith(_VERSION)
    return values - {None} if is_fact else values


def shared(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the names and values that are the same in all."""
    apart = set(differing(settings))
    return {k: v for one in settings for k, v in one.items() if k not in apart}


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


_Record = TypeVar("_Record", RunRecord, GridRecord, SearchRecord, CsvMeasurements)


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


def name_sweeps(sweeps: Sequence[GridRecord]) -> list[GridRecord]:
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


def _with_named_runs(sweep: GridRecord) -> GridRecord:
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


def with_sweep_name(sweep: GridRecord) -> GridRecord:
    """Put the name of a sweep before those of its runs."""
    runs = {
        point: dataclasses.replace(run, name=f"{sweep.name}: {run.name}")
        for point, run in sweep.runs.items()
    }
    return dataclasses.replace(sweep, runs=runs)


_RECORD = {STUDY_FILE, *FILES}


@dataclasses.dataclass(kw_only=True)
class Sources:
    """What a report is made of.

    Attributes:
        runs: Run folders, also those of runs that were killed.
        sweeps: Sweep folders.
        searches: Folders of `kdist tune`.
        measurements: CSV files of measurements.
        skipped: The rest.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[GridRecord] = dataclasses.field(default_factory=list)
    searches: list[SearchRecord] = dataclasses.field(default_factory=list)
    measurements: list[CsvMeasurements] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)

    @property
    def all_runs(self) -> list[RunRecord]:
        """The run folders, those of sweeps too."""
        return [*self.runs, *(run for sweep in self.sweeps for run in sweep.runs.values())]

    def __bool__(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.runs or self.sweeps or self.searches or self.measurements)


def find_sources(paths: Sequence[str]) -> Sources:
    """Read runs, sweeps, searches and CSV files at `paths`, or at any depth in the folders there.

    Raises:
        UserError: A path does not exist or cannot be read, or there is nothing to show.
    """
    sources = Sources()
    seen: set[Path] = set()
    for text in paths:
        try:
            if not text:
                raise ValueError("the path is empty")
            children = _children(Path(text))
        except (OSError, ValueError) as error:  # also of a path that no file can have
            raise UserError(
                f"cannot read {text}: {error_text(error)}; pass folders of runs, sweeps or"
                " searches, or CSV files"
            ) from error
        for child in children:
            if child.resolve() not in seen:
                seen.add(child.resolve())
                _add(sources, child)
    if not sources:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in sources.skipped)
        raise UserError(
            f"nothing to report: {reasons or 'the folder is empty'}; pass a folder of kdist train,"
            " sweep or tune"
        )
    _name(sources)
    return sources


def _name(sources: Sources) -> None:
    """Give everything a name that nothing else of its kind has."""
    sources.runs = name_runs(sources.runs)
    sources.sweeps = name_sweeps(sources.sweeps)
    if len({run.name for run in sources.all_runs}) < len(sources.all_runs):
        sources.sweeps = [with_sweep_name(sweep) for sweep in sources.sweeps]
    sources.searches = distinguish(sources.searches)
    sources.measurements = distinguish(sources.measurements)


def _children(path: Path) -> list[Path]:
    """Return the path itself if it is a file or a record, else the records at any depth below it.

    Folders in which there are none are listed, too, as skipped.
    """
    path.stat()
    if not path.is_dir() or _is_record(path):
        return [path]
    os.scandir(path).close()  # raises an error if it cannot be read
    records: list[Path] = []
    others: list[Path] = []  # one that cannot be read is explained when it is added
    seen: set[str] = set()
    walk = os.walk(
        path, followlinks=True, onerror=lambda error: others.append(Path(error.filename))
    )
    for name, folders, files in walk:
        folder, place = Path(name), os.path.realpath(name)
        is_record = not _RECORD.isdisjoint(files)
        if place not in seen:
            (records if is_record else others).append(folder)
        if is_record or place in seen or (folder.name.startswith(".") and folder != path):
            folders.clear()
        seen.add(place)
        # Links last, so that what they lead to has its own name.
        folders.sort(key=lambda child: (os.path.islink(os.path.join(name, child)), child))
    above = {path}.union(*(record.parents for record in records))
    empty = [folder for folder in others if folder not in above and folder.parent in above]
    return [*records, *empty] or [path]


def _is_record(path: Path) -> bool:
    return any((path / name).is_file() for name in _RECORD)


def _add(sources: Sources, path: Path) -> None:
    try:
        if not path.is_dir():
            sources.measurements.append(read_csv_measurements(path))
        elif (path / STUDY_FILE).is_file():
            study = read_study(path)
            if isinstance(study, GridRecord):
                sources.sweeps.append(study)
            else:
                sources.searches.append(study)
        else:
            sources.runs.append(read_run(path, unfinished=True))
    except UserError as error:
        sources.skipped.append(Skipped.of(path, error))
    except OSError as error:
        sources.skipped.append(Skipped.of(path, f"cannot be read: {error.strerror}"))
