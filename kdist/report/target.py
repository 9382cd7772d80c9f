"""When a run met its target, from its table alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Met:
    """Where a target was met: the first epoch of the row that beats it.

    Attributes:
        epoch: From 1.
        seconds: Of the wall clock since training began.
    """

    epoch: int
    seconds: float


def met_target(
    epochs: Sequence[Mapping[str, float | None]], targets: Mapping[str, float], *, patience: int
) -> Met | None:
    """The first of `patience` epochs in a row that beat every target, as `StopAtAccuracy` counts.

    Epochs without validation neither count nor interrupt the row.

    Args:
        epochs: Lines of `history.csv`.
        targets: What to beat, by column; of none, nothing is met.
        patience: Epochs in a row, at least 1.
    """
    row: list[Mapping[str, float | None]] = []
    for epoch in epochs if targets else ():
        values = {name: epoch.get(name) for name in targets}
        if any(value is None for value in values.values()):
            continue
        beaten = all(_above(values[name], target) for name, target in targets.items())
        row = [*row, epoch] if beaten else []
        if len(row) == patience:
            number, seconds = row[0].get("epoch"), row[0].get("seconds")
            return None if number is None or seconds is None else Met(int(number), seconds)
    return None


def _above(value: float | None, target: float) -> bool:
    # Keras computes in float32, where 8,500 right of 10,000 come out as 0.85000002.
    return value is not None and bool(np.float32(value) > np.float32(target))
