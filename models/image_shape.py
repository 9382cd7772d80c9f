"""Check of the argument `input_shape` of models."""

from collections.abc import Sequence

from ..arguments import as_integer
from ..errors import UserError

CHANNELS_LAST = "channels_last"
"""The data format of the models, independent of Keras's configuration."""
IMAGE_RANK = 3
_TIMES_IN_WORDS = ("never", "once", "twice", "three times", "four times")


def check_image_shape(
    shape: Sequence[int | None], *, times_halved: int, sides_required: bool = False
) -> None:
    """Check `input_shape`.

    Args:
        shape: The shape of an image, without the batch axis.
        times_halved: Number of times that the model halves height and width, rounding down.
        sides_required: Whether height and width have to be numbers; otherwise both may be `None`.

    Raises:
        UserError: The shape is wrong.
    """
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != IMAGE_RANK:
        raise UserError(
            f"input_shape is {shape!r}, but has to be (height, width, channels) of one image,"
            " without the batch axis: pass three numbers, for example (28, 28, 1)"
        )
    *sides, channels = shape
    if not _is_at_least(1, channels):
        raise UserError(
            f"input_shape is {shape!r}: channels is {channels!r}, but has to be an integer of at"
            " least 1"
        )
    smallest = 2**times_halved
    given = sides if sides_required else [side for side in sides if side is not None]
    if not all(_is_at_least(smallest, side) for side in given):
        why = f" (the model halves them {_TIMES_IN_WORDS[times_halved]})" if times_halved else ""
        raise UserError(
            f"input_shape is {shape!r}, but height and width have to be integers of at least"
            f" {smallest}{why}{'' if sides_required else ', or None'}"
        )


def _is_at_least(least: int, value: object) -> bool:
    number = as_integer(value)
    return number is not None and number >= least
