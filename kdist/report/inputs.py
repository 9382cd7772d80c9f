"""What `kdist report` is given: runs (read by `runs/record.py`), sweeps, searches; their names."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..charts.tables import MISSING, setting
from ..errors import UserError, error_text
from ..fields import field_names
from ..runs.record import FILES, RunRecord, read_run
from ..runs.text import sanitize_text
from ..study.folder import STUDY_FILE
from ..training.networks import SIZES
from ..training.settings import FOLDERS, OwnModel, model_name
from .studies import SearchRecord, SweepRecord, read_study

_RECORD = {STUDY_FILE, *FILES}


@dataclasses.dataclass(kw_only=True)
class Sources:
    """What a report is made of.

    Attributes:
        runs: Run folders, also those of runs that were killed.
        sweeps: Sweep folders.
        searches: Folders of `kdist tune`.
        skipped: The paths of the rest, with the reason.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[SweepRecord] = dataclasses.field(default_factory=list)
    searches: list[SearchRecord] = dataclasses.field(default_factory=list)
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @property
    def all_runs(self) -> list[RunRecord]:
        """The run folders, those of sweeps too."""
        return [*self.runs, *(run for sweep in self.sweeps for run in sweep.runs.values())]


def find_sources(paths: Sequence[str]) -> Sources:
    """Read runs, sweeps and searches at `paths`, or at any depth in the folders there.

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
                f"cannot read {text}: {error_text(error)}; pass folders of runs, sweeps or searches"
            ) from error
        for child in children:
            if child.resolve() not in seen:
                seen.add(child.resolve())
                _add(sources, child)
    if not (sources.runs or sources.sweeps or sources.searches):
        reasons = "; ".join(f"{path}: {reason}" for path, reason in sources.skipped)
        raise UserError(
            f"nothing to report: {reasons or 'the folder is empty'}; pass a folder of kdist train,"
            " sweep or tune"
        )
    _name(sources)
    return sources


def _children(path: Path) -> list[Path]:
    """Return the path itself if it is a record or no folder, else the records below it.

    Folders in which there are none are listed, too, as skipped.
    """
    path.stat()
    if not path.is_dir() or any((path / name).is_file() for name in _RECORD):
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


def _add(sources: Sources, path: Path) -> None:
    try:
        if (path / STUDY_FILE).is_file():
            study = read_study(path)
            if isinstance(study, SweepRecord):
                sources.sweeps.append(study)
            else:
                sources.searches.append(study)
        else:
            sources.runs.append(read_run(path, unfinished=True))
    except UserError as error:
        sources.skipped.append((sanitize_text(str(path)), sanitize_text(str(error))))
    except OSError as error:
        sources.skipped.append((sanitize_text(str(path)), f"cannot be read: {error.strerror}"))


# Settings

_FACTS = {"replicas", "global_batch", "learning_rate", "parameters", "data", "device"}
_FACTS |= {"training_images", "validation_images"}
# These follow from others: they name no run.
_DERIVED = (_FACTS - {"replicas", "data", "device"}) | {"network", *SIZES}


def settings_of(run: RunRecord) -> dict[str, str]:
    """Return the settings and facts of a run as text; those that are not known are missing."""
    values: dict[str, Any] = {k: v for k, v in run.settings.items() if k not in FOLDERS}
    values.pop("replicas", None)  # the settings may leave it open
    if values.get("model") is not None:
        values["model"] = model_name(values)
    for name in field_names(OwnModel):
        if values.get(name) is None:
            values.pop(name, None)
    values |= {name: run.summary[name] for name in sorted(_FACTS) if name in run.summary}
    names, versions = run.summary.get("device_names"), run.summary.get("versions")
    if isinstance(names, list):
        values["device"] = list(dict.fromkeys(map(str, names)))
    if isinstance(versions, Mapping):
        values |= {f"version of {name}": version for name, version in versions.items()}
    return {str(name): setting(value) for name, value in values.items()}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names whose values are not the same in all.

    A missing setting is a difference. A missing fact, such as the device of a run that was killed,
    is not known.
    """

    def values(name: str) -> set[str | None]:
        found = {one.get(name) for one in settings}
        return found - {None} if name in _FACTS or name.startswith("version of ") else found

    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len(values(name)) > 1]


# Names

# `kdist train` names a folder so where the user does not.
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}-\d{6}(-\d+)?")


def _name(sources: Sources) -> None:
    """Give everything a name that nothing else of its kind has, and mark how runs ended."""
    runs = sources.all_runs
    # The folder of a sweep's run has the name `run`, that of its point tells which it is.
    points = {run.path for sweep in sources.sweeps for run in sweep.runs.values()}
    tails = _tails([run.path.parent if run.path in points else run.path for run in runs])
    names = dict(zip((run.path for run in runs), tails, strict=True))
    names |= _by_settings([run for run in sources.runs if _DATED.fullmatch(run.path.name)])

    def named(run: RunRecord) -> RunRecord:
        mark = "" if run.status.is_complete else f" ({run.status.word})"
        return dataclasses.replace(run, name=names[run.path] + mark)

    sources.runs = [named(run) for run in sources.runs]
    sources.sweeps = [
        dataclasses.replace(
            sweep, name=tail, runs={point: named(run) for point, run in sweep.runs.items()}
        )
        for sweep, tail in zip(
            sources.sweeps, _tails([s.path for s in sources.sweeps]), strict=True
        )
    ]
    sources.searches = [
        dataclasses.replace(search, name=tail)
        for search, tail in zip(
            sources.searches, _tails([s.path for s in sources.searches]), strict=True
        )
    ]


def _tails(paths: Iterable[Path]) -> list[str]:
    """The last part of each path, and as much before it as tells it from the others."""
    places = [path.resolve().parts for path in paths]
    found = []
    for parts in places:
        length = 1
        while length < len(parts) and sum(p[-length:] == parts[-length:] for p in places) > 1:
            length += 1
        found.append(sanitize_text("/".join(parts[-length:])))
    return found


def _by_settings(runs: Sequence[RunRecord]) -> dict[Path, str]:
    """Name runs by the settings that tell them apart; those that none does are left out."""
    settings = [settings_of(run) | {"model": model_name(run.settings)} for run in runs]
    chosen: list[str] = []
    kinds = 1
    for name in differing(settings):
        now = len({tuple(one.get(n) for n in (*chosen, name)) for one in settings})
        if now > kinds and name not in _DERIVED:
            chosen.append(name)
            kinds = now
    words = [
        ", ".join(f"{name.replace('_', ' ')} {one.get(name, MISSING)}" for name in chosen)
        for one in settings
    ]
    pairs = zip(runs, words, strict=True)
    return {run.path: name for run, name in pairs if name and words.count(name) == 1}
