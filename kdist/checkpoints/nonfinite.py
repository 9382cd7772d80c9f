"""Weights that are NaN or infinite, which no checkpoint may hold."""

from collections.abc import Collection, Mapping

import numpy as np


class NonFiniteWeightsError(FloatingPointError):
    """The training has diverged.

    Attributes:
        variable: The first variable that has a NaN or an infinity.
        epoch: The epoch, counted from 1, in which it was found.
        step: The step of the epoch, counted from 1, after which it was found.
    """

    def __init__(self, variable: str, *, epoch: int, step: int) -> None:
        super().__init__(
            f"{variable} is not finite after step {step} of epoch {epoch}, so training stopped;"
            " the newest checkpoint is from before: lower the learning rate or clip the gradients"
            " (clipnorm=1.0)"
        )
        self.variable = variable
        self.epoch = epoch
        self.step = step


def first_nonfinite(
    arrays: Mapping[str, np.ndarray], *, allowed: Collection[str] = ()
) -> str | None:
    """Return the name of the first array that has a NaN or an infinity; `None` without any.

    Args:
        arrays: By name.
        allowed: Names of arrays that may, such as a mask of minus infinities.
    """
    for name, array in arrays.items():
        if name not in allowed and not _is_finite(array):
            return name
    return None


def _is_finite(array: np.ndarray) -> bool:
    if array.dtype.kind in "biu":
        return True
    try:
        return bool(np.isfinite(array).all())
    except TypeError:  # a type without such numbers
        return True
