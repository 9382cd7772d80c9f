"""`Facts`: what a training did, as plain data between its process and the one that judges."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..atomic_files import atomic_write


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """The images that a program has loaded.

    Attributes:
        name: Of the data set, such as `"CIFAR-10"`.
        training: Number of training images.
        test: Number of test images.
    """

    name: str
    training: int
    test: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Epoch:
    """What happened in an epoch of `fit`.

    Attributes:
        seconds: From the begin of the training to the end of the epoch, its validation included.
        rows: Rows that each replica trained on.
        repeated: Rows that were seen by a replica, and by another one too.
        values: What `fit` logged, such as `val_accuracy`.
        validated: Rows that entered the metrics of the validation; 0 without one.
    """

    seconds: float
    rows: Sequence[int]
    repeated: int
    values: Mapping[str, float]
    validated: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What a training did.

    Attributes:
        images: What was loaded; `None` if unknown.
        largest_step: Rows of the largest step, of all replicas.
        fits: Number of fits that have begun.
        is_cut: Whether the training was ended before its last epoch.
        rates: Learning rate by step, counted over all fits, wherever it was looked at.
        planned_peak: The largest rate that is planned, as by the schedule; `None` if unknown.
        epochs: The complete epochs.
        late: Seconds after which an epoch was ended, as the time was over; `None` if none was.
        error: Why the program failed, in a line; `None` if it did not.
    """

    images: Images | None = None
    largest_step: int = 0
    fits: int = 0
    is_cut: bool = False
    rates: Sequence[tuple[int, float]] = ()
    planned_peak: float | None = None
    epochs: Sequence[Epoch] = ()
    late: float | None = None
    error: str | None = None

    @property
    def peak(self) -> float | None:
        """The largest learning rate, also where the training ended before it."""
        seen = [rate for _, rate in self.rates]
        return max(
            [*seen, *([] if self.planned_peak is None else [self.planned_peak])], default=None
        )

    def write(self, path: Path) -> None:
        """Write the facts to a file, completely or not at all."""
        atomic_write(path, json.dumps(dataclasses.asdict(self)))


def read_facts(path: Path) -> Facts:
    """Read what `Facts.write` wrote; without a file, there are none.

    Args:
        path: The file.
    """
    if not path.exists():
        return Facts()
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    values["epochs"] = [Epoch(**epoch) for epoch in values["epochs"]]
    values["rates"] = [(int(step), float(rate)) for step, rate in values["rates"]]
    values["images"] = None if values["images"] is None else Images(**values["images"])
    return Facts(**values)
