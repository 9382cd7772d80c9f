"""`RunRecord`: the contents of a run folder as plain data."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..arguments import as_real
from ..errors import UserError
from .target import Met, met_target
from .text import sanitize_text
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
        summary: The contents of `summary.json`.
        epochs: The lines of `history.csv`: numbers or `None` by column.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    epochs: Sequence[Mapping[str, float | None]]

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
        return warm_rates(self.known("images_per_sec"))

    @cached_property
    def images_per_sec(self) -> float | None:
        """The median of `rates`."""
        return median_rate(self.known("images_per_sec"))

    @cached_property
    def met(self) -> Met | None:
        """When the run met the target in its settings."""
        targets = {"val_accuracy": finite(self.settings.get("target_accuracy"))}
        targets["accuracy"] = finite(self.settings.get("target_train_accuracy"))
        patience = finite(self.settings.get("patience")) or 1
        wanted = {name: value for name, value in targets.items() if value is not None}
        return met_target(self.epochs, wanted, patience=int(patience))


def finite(value: Any) -> float | None:
    """Return the value if it is a finite number, otherwise `None`."""
    number = as_real(value)
    return number if number is not None and math.isfinite(number) else None


def read_run(path: Path, *, name: str | None = None) -> RunRecord:
    """Read a run folder.

    Raises:
        UserError: It is foreign, half-written or unreadable; the message says which.
    """
    present = [file for file in FILES if (path / file).is_file()]
    if not present:
        raise UserError("no run folder: it has none of " + ", ".join(FILES))
    missing = [file for file in FILES if file not in present]
    if missing:
        raise UserError(
            f"half-written: {', '.join(missing)} is missing, so the run is still going or was"
            " killed"
        )
    settings, summary = _read_json(path / "config.json"), _read_json(path / "summary.json")
    absent = [fact for fact in _REQUIRED if finite(summary.get(fact)) is None]
    if absent:
        raise UserError(f"foreign: its summary.json lacks {', '.join(absent)}")
    return RunRecord(
        name=sanitize_text(path.name if name is None else name),
        path=path,
        settings=settings,
        summary=summary,
        epochs=_read_history(path / "history.csv"),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"unreadable: {path.name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"unreadable: {path.name} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"foreign: {path.name} holds a {type(content).__name__}, not settings")
    return dict(sanitize_text(content))


def _read_history(path: Path) -> list[dict[str, float | None]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restkey="beyond", restval="")
            columns = set(reader.fieldnames or ())
            rows = list(reader)
    except OSError as error:
        raise UserError(f"unreadable: {path.name}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"unreadable: {path.name} is no table: {error}") from error
    if not {"epoch", "seconds"} <= columns:
        raise UserError(f"foreign: {path.name} has no columns epoch and seconds")
    if any("beyond" in row for row in rows):
        raise UserError(f"unreadable: a line of {path.name} is longer than its heading")
    return [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> float | None:
    try:
        return finite(float(text))
    except ValueError:
        return None
