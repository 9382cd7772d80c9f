"""Checks of the arguments of models."""

from collections.abc import Sequence

from ..arguments import as_integer
from ..errors import UserError

CHANNELS_LAST = "channels_last"
"""The data format of the models, independent of Keras's configuration."""
IMAGE_RANK = 3
_TIMES = ("never", "once", "twice", "three times", "four times")


def check_shape(shape: Sequence[int | None], *, halved: int, known: bool = False) -> None:
    """Reject a wrong shape of an image.

    Args:
        shape: The shape, without the batch axis.
        halved: Number of times that the model halves height and width, rounding down.
        known: Whether height and width must not be `None`.

    Raises:
        UserError: The shape is wrong.
    """
    order = "(height, width, channels)"
    wrong = f"input_shape={shape!r} is not {order} of one image, without the batch axis"
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != IMAGE_RANK:
        raise UserError(f"{wrong}: pass three numbers, for example (28, 28, 1).")
    *sides, channels = shape
    if not _is_at_least(1, channels):
        raise UserError(f"{wrong}: channels is {channels!r}, but has to be an integer ≥ 1.")
    smallest = 2**halved
    if any((known or side is not None) and not _is_at_least(smallest, side) for side in sides):
        why = f", as they are halved {_TIMES[halved]}" if halved else ""
        raise UserError(
            f"{wrong}: height and width have to be integers ≥ {smallest}{why}"
            f"{'' if known else ', or None'}."
        )


def _is_at_least(least: int, value: object) -> bool:
    number = as_integer(value)
    return number is not None and number >= least
