"""The result of a run: `TrainResult`, and `RunRecord` as read again from the run folder."""

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from ..arguments import as_real
from ..errors import UserError, message_without_path
from ..files import read_text

if TYPE_CHECKING:
    import keras

    from ..callbacks.stop_at_non_finite import NonFinite


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a run.

    Attributes:
        val_accuracy: Validation accuracy after the last complete epoch; `None` without validation.
        best_val_accuracy: Best validation accuracy of all epochs; `None` without validation.
        images_per_sec: Training images per second, median over the epochs after the first.
        seconds: Duration of `fit`, validation included.
        epochs: Complete epochs trained.
        reached_target: Whether training stopped because the target accuracy was reached.
        met_epoch: First of the successive epochs above the target, as `StopAtAccuracy` counts
            epochs; `None` if the target was not reached.
        met_seconds: Seconds of training until the end of `met_epoch`, or `None`.
        interrupted: Whether Ctrl-C, SIGTERM or SIGHUP ended the training.
        signal: The signal that arrived during or after training; `None` without a signal.
        diverged: Epoch and step of the NaN or infinite loss that ended the training; `None` if the
            loss was finite.
        run_dir: The run folder.
        history: The values of each epoch, by name.
        model: The trained model.
    """

    val_accuracy: float | None
    best_val_accuracy: float | None
    images_per_sec: float | None
    seconds: float
    epochs: int
    reached_target: bool
    met_epoch: int | None
    met_seconds: float | None
    interrupted: bool
    signal: Signals | None
    diverged: "NonFinite | None"
    run_dir: str
    history: dict[str, list[float]]
    model: "keras.Model"


def warm_images_per_second(by_epoch: Sequence[float | None]) -> list[float]:
    """Return the images per second without the first epoch, unless only this epoch has a value.

    Examples:
        >>> warm_images_per_second([10.0, 90.0, 110.0])
        [90.0, 110.0]
    """
    known = [value for value in by_epoch[1:] if value is not None]
    return known or [value for value in by_epoch[:1] if value is not None]


def median_images_per_second(by_epoch: Sequence[float | None]) -> float | None:
    """Return the median of `warm_images_per_second`; `None` without any value."""
    warm = warm_images_per_second(by_epoch)
    return statistics.median(warm) if warm else None


# Columns of `history.csv` that are also in `summary.json`.
_SUMMARY_COLUMNS = ("replicas", "global_batch", "learning_rate", "seconds", "val_accuracy")


def summarize_epochs(epochs: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Return the summary of an unfinished run, without the keys that are unknown.

    Examples:
        >>> summarize_epochs([{"epoch": 1, "seconds": 9.5, "replicas": 4}])
        {'epochs': 1, 'replicas': 4, 'seconds': 9.5}
    """
    known = {
        name: epoch[name]
        for epoch in epochs
        for name in _SUMMARY_COLUMNS
        if epoch.get(name) is not None
    }
    return {
        "epochs": len(epochs),
        **{name: known[name] for name in _SUMMARY_COLUMNS if name in known},
    }


FILES = ("config.json", "history.csv", "summary.json")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The contents of a run folder.

    Attributes:
        name: Name of the run in the report.
        path: The folder.
        settings: The contents of `config.json`.
        summary: The contents of `summary.json`; for an unfinished run, the result of
            `summarize_epochs`.
        epochs: The lines of `history.csv`: numbers or `None` by column.
        is_finished: Whether there is a `summary.json`; a killed run lacks the file.
    """

    name: str
    path: Path
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    epochs: Sequence[Mapping[str, float | None]]
    is_finished: bool = True

    @property
    def status(self) -> str:
        """`"complete"`, `"interrupted"`, `"diverged"` or `"unfinished"`."""
        if not self.is_finished:
            return "unfinished"
        if self.summary.get("diverged") is not None:
            return "diverged"
        return "interrupted" if self.summary.get("interrupted") else "complete"

    @property
    def diverged_at(self) -> str:
        """The place of the loss that was not finite, such as `epoch 4, step 17`."""
        return ", ".join(f"{name} {number}" for name, number in self.summary["diverged"].items())

    @cached_property
    def shares_cores(self) -> bool:
        """Whether the run's replicas are logical CPUs and share the cores of one processor."""
        devices = self.summary.get("devices")
        names = devices if isinstance(devices, list) else []
        return len(names) > 1 and all("CPU" in str(name) for name in names)

    def summary_number(self, name: str) -> float | None:
        """Return a number of the summary if it is finite, otherwise `None`."""
        return as_finite(self.summary.get(name))

    def values(self, column: str) -> list[float | None]:
        """Return a column of the history."""
        return [epoch.get(column) for epoch in self.epochs]

    def known_values(self, column: str) -> list[float]:
        """Return the values of a column, without epochs that lack a value."""
        return [value for value in self.values(column) if value is not None]

    @cached_property
    def best(self) -> tuple[float, int] | None:
        """The best validation accuracy and its epoch, from 1."""
        candidates = [
            (value, -number)
            for number, value in enumerate(self.values("val_accuracy"), start=1)
            if value is not None
        ]
        value, epoch = max(candidates, default=(None, 0))
        return None if value is None else (value, -epoch)

    @property
    def is_warm(self) -> bool:
        """Whether `images_per_sec` leaves out the first epoch, which includes tracing."""
        return any(value is not None for value in self.values("images_per_sec")[1:])

    @cached_property
    def images_per_sec(self) -> float | None:
        """The median of the epochs, see `median_images_per_second`."""
        return median_images_per_second(self.values("images_per_sec"))


def as_finite(value: Any) -> float | None:
    """Return the value if it is a finite number, otherwise `None`."""
    number = as_real(value)
    return number if number is not None and math.isfinite(number) else None


def read_run(path: Path, *, unfinished: bool = False) -> RunRecord:
    """Read a run folder.

    Args:
        path: The folder.
        unfinished: Also read the folder of a run that was killed or is still running.

    Raises:
        UserError: The folder is not a run folder, is incomplete or cannot be read; the message
            names the problem.
    """
    present = [file for file in FILES if (path / file).is_file()]
    if not present:
        raise UserError(
            f"not a run folder: it has none of {', '.join(FILES)}; pass the folder that kdist train"
            " has printed"
        )
    is_finished = "summary.json" in present
    needed = ("config.json",) if unfinished and not is_finished else FILES
    missing = [file for file in needed if file not in present]
    if missing:
        why = "" if is_finished else ": the run was killed or is still running"
        raise UserError(f"incomplete: {', '.join(missing)} missing{why}")
    settings, history = _read_json(path / "config.json"), path / "history.csv"
    # An unfinished run may not have written a line yet.
    has_epochs = is_finished or (history.is_file() and history.stat().st_size > 0)
    epochs = _read_history(history) if has_epochs else []
    summary = _read_json(path / "summary.json") if is_finished else summarize_epochs(epochs)
    return RunRecord(
        name=path.name,
        path=path,
        settings=settings,
        summary=summary,
        epochs=epochs,
        is_finished=is_finished,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_text(path)))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path.name} cannot be read: {message_without_path(error)}") from error


def _read_history(path: Path) -> list[dict[str, float | None]]:
    try:
        text = io.StringIO(read_text(path), newline="")
        reader = csv.DictReader(text, restval="")
        rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path.name} cannot be read: {message_without_path(error)}") from error
    too_long = next((line for line, row in enumerate(rows, 2) if None in row), None)
    if too_long is not None:
        raise UserError(f"line {too_long} of {path} has more values than columns")
    if not {"epoch", "seconds"} <= set(reader.fieldnames or ()):
        raise UserError(f"{path.name} lacks the column epoch or seconds")
    return [{name: _parse_number(text) for name, text in row.items()} for row in rows]


def _parse_number(text: str) -> float | None:
    try:
        return as_finite(float(text))
    except ValueError:
        return None
