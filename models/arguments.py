"""Checks of the arguments of models."""

from collections.abc import Sequence
from numbers import Integral

from ..arguments import is_real_within
from ..errors import UserError

IMAGE_RANK = 3
_TIMES = ("never", "once", "twice", "three times", "four times")


def check_range(argument: str, value: int, smallest: int) -> None:
    """Reject an argument that is not an integer of at least `smallest`.

    Raises:
        UserError: It is not.
    """
    if not is_int(value) or value < smallest:
        raise UserError(f"{argument}={value!r} is not an integer ≥ {smallest}.")


def check_weight_decay(value: float) -> None:
    """Reject an L2 penalty that is not a number of at least 0.

    Raises:
        UserError: It is not.
    """
    if not is_real_within(value, least=0):
        raise UserError(f"weight_decay={value!r} is not a number ≥ 0: pass 0 for none.")


def check_shape(
    shape: Sequence[int | None], data_format: str, *, halved: int, known: bool = False
) -> None:
    """Reject a wrong shape of one image, or data format.

    Args:
        shape: The shape, without the batch axis.
        data_format: "channels_last" or "channels_first".
        halved: How often the model halves height and width, rounding down.
        known: Whether height and width may not be `None`.

    Raises:
        UserError: The shape does not fit, or the format is another one.
    """
    if data_format not in ("channels_first", "channels_last"):
        raise UserError(
            f'data_format={data_format!r} is neither "channels_last" nor "channels_first".'
        )
    first = data_format == "channels_first"
    order = "(channels, height, width)" if first else "(height, width, channels)"
    wrong = f"input_shape={shape!r} is not {order} of one image, without the batch axis"
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != IMAGE_RANK:
        raise UserError(f"{wrong}: pass three numbers, for example (28, 28, 1).")
    channels, *sides = shape if first else (shape[2], *shape[:2])
    if channels is None or not is_int(channels) or channels < 1:
        raise UserError(f"{wrong}: channels is {channels!r}, but has to be an integer ≥ 1.")
    smallest = 2**halved
    allowed = [None] if not known else []
    if any(side not in allowed and (not is_int(side) or side < smallest) for side in sides):
        why = f", as they are halved {_TIMES[halved]}" if halved else ""
        raise UserError(
            f"{wrong}: height and width have to be integers ≥ {smallest}{why}"
            f"{'' if known else ', or None'}."
        )


def is_int(value: object) -> bool:
    """Whether a value is an integer; NumPy's are, `True` is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)
