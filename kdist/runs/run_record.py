"""`RunRecord`: the contents of a run folder as plain data."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..arguments import as_real
from ..errors import UserError
from ..files import parse_json, read_text
from .run_status import RunStatus, run_status
from .summary_so_far import summary_so_far
from .target import Met, met_target
from .text import of_workers, sanitize_text
from .warm_epochs import median_rate, warm_rates

FILES = ("config.json", "history.csv", "summary.json")
_REQUIRED = ("replicas", "global_batch", "seconds")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The contents of a run folder.

    Attributes:
        name: Its name in the report.
        path: The folder.
        settings: The contents of `config.json`.
        summary: The contents of `summary.json`; without one, what the other files show.
        epochs: The lines of `history.csv`: numbers or `None` by column.
        finished: Whether there is a `summary.json`; a killed run has none.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    epochs: Sequence[Mapping[str, float | None]]
    finished: bool = True

    @cached_property
    def status(self) -> RunStatus:
        """How the run ended."""
        return run_status(self.summary, finished=self.finished)

    @cached_property
    def shares_cores(self) -> bool:
        """Whether its replicas are logical CPUs, which share the cores of one processor."""
        devices = self.summary.get("devices")
        names = devices if isinstance(devices, list) else []
        return len(names) > 1 and all("CPU" in str(name) for name in names)

    @property
    def of_workers(self) -> str:
        """Whose the replicas are, such as ` of 2 workers`; nothing for a single one."""
        return of_workers(self.fact("workers"))

    def fact(self, name: str) -> float | None:
        """Return a number of the summary if it is finite, otherwise `None`."""
        return finite(self.summary.get(name))

    def values(self, column: str) -> list[float | None]:
        """Return a column of the history."""
        return [epoch.get(column) for epoch in self.epochs]

    def known(self, column: str) -> list[float]:
        """Return the values of a column, without epochs that have none."""
        return [value for value in self.values(column) if value is not None]

    def logged(self, column: str) -> bool:
        """Whether any epoch has a value in the column."""
        return bool(self.known(column))

    @cached_property
    def best(self) -> tuple[float, int] | None:
        """The best validation accuracy and its epoch, from 1."""
        found = [
            (value, -number)
            for number, value in enumerate(self.values("val_accuracy"), start=1)
            if value is not None
        ]
        value, epoch = max(found, default=(None, 0))
        return None if value is None else (value, -epoch)

    @cached_property
    def rates(self) -> list[float]:
        """Images per second of the warm epochs, see `warm_rates`."""
        return warm_rates(self.values("images_per_sec"))

    @property
    def is_warm(self) -> bool:
        """Whether `rates` exclude the first epoch, which includes tracing."""
        return any(rate is not None for rate in self.values("images_per_sec")[1:])

    @cached_property
    def images_per_sec(self) -> float | None:
        """The median of `rates`."""
        return median_rate(self.values("images_per_sec"))

    @property
    def accuracy_target(self) -> float | None:
        """The validation accuracy that the run was to beat; `None` if there was none."""
        return self._targets.get("val_accuracy")

    @property
    def _targets(self) -> dict[str, float]:
        own, monitor = self.settings.get("model"), self.settings.get("monitor")
        if own is not None and monitor is None:
            return {}
        targets = {
            "accuracy": finite(self.settings.get("target_train_accuracy")),
            str(monitor or "val_accuracy"): finite(self.settings.get("target_accuracy")),
        }
        return {name: value for name, value in targets.items() if value is not None}

    @cached_property
    def met(self) -> Met | None:
        """When the run met the target in its settings."""
        patience = finite(self.settings.get("patience")) or 1
        return met_target(self.epochs, self._targets, patience=int(patience))


def finite(value: Any) -> float | None:
    """Return the value if it is a finite number, otherwise `None`."""
    number = as_real(value)
    return number if number is not None and math.isfinite(number) else None


def read_run(path: Path, *, name: str | None = None, unfinished: bool = False) -> RunRecord:
    """Read a run folder.

    Args:
        path: The folder.
        name: The name of the run in reports; the folder's by default.
        unfinished: Also read the folder of a run that was killed or is still running.

    Raises:
        UserError: It is not a run folder, is incomplete or cannot be read; the message says which.
    """
    present = [file for file in FILES if (path / file).is_file()]
    if not present:
        raise UserError("not a run folder: it has none of " + ", ".join(FILES))
    finished = "summary.json" in present
    needed = ("config.json",) if unfinished and not finished else FILES
    missing = [file for file in needed if file not in present]
    if missing:
        why = "" if finished else ": the run was killed or is still running"
        raise UserError(f"incomplete: {', '.join(missing)} missing{why}")
    settings = _read_json(path / "config.json")
    epochs = _read_history(path / "history.csv") if finished or _has_text(path) else []
    summary = _read_summary(path / "summary.json") if finished else summary_so_far(settings, epochs)
    return RunRecord(
        name=sanitize_text(path.name if name is None else name),
        path=path,
        settings=settings,
        summary=summary,
        epochs=epochs,
        finished=finished,
    )


def _has_text(path: Path) -> bool:
    """Whether a run that did not finish got as far as a line of `history.csv`."""
    history = path / "history.csv"
    return history.is_file() and history.stat().st_size > 0


def _read_summary(path: Path) -> dict[str, Any]:
    summary = _read_json(path)
    absent = [fact for fact in _REQUIRED if finite(summary.get(fact)) is None]
    if absent:
        raise UserError(f"{path.name} lacks {', '.join(absent)}: it is not of kdist train")
    return summary


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_text(path))
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path.name} contains a {type(content).__name__}, not an object")
    return dict(sanitize_text(content))


def _read_history(path: Path) -> list[dict[str, float | None]]:
    try:
        text = io.StringIO(read_text(path), newline="")
        reader = csv.DictReader(text, restkey="beyond", restval="")
        columns = set(reader.fieldnames or ())
        rows = list(reader)
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path.name} is not a CSV table: {error}") from error
    if not {"epoch", "seconds"} <= columns:
        raise UserError(f"{path.name} has no columns epoch and seconds")
    if any("beyond" in row for row in rows):
        raise UserError(f"a line of {path.name} is longer than its header")
    return [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> float | None:
    try:
        return finite(float(text))
    except ValueError:
        return None
