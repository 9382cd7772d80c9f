"""The two formats of CIFAR-10's files, binary and Python, read strictly."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .plain_pickle import read_plain_pickle
from .sources import HINT

CLASSES = 10
SHAPE = (3, 32, 32)  # red, green and blue planes, row by row
PIXELS = 3 * 32 * 32

Bytes = npt.NDArray[np.uint8]


def parse_binary(content: bytes, *, images: int, origin: str) -> tuple[Bytes, Bytes]:
    """Read a file of the binary version: for each image a byte with its label, and its pixels.

    Args:
        content: The whole file.
        images: The number that it must have.
        origin: What to call the file in an error.

    Returns:
        Labels, (images,), and pixels, (images, 3072), uint8.

    Raises:
        UserError: When its length is another one, or a label is above 9.

    Source:
        "Binary version" of https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    length = images * (1 + PIXELS)
    if len(content) != length:
        raise UserError(
            f"{origin}: holds {'more than' if len(content) > length else 'only'} "
            f"{min(len(content), length):,} bytes; expected {length:,}, {images:,} images of "
            f"{1 + PIXELS:,} bytes. {HINT}"
        )
    records = np.frombuffer(content, np.uint8).reshape(images, 1 + PIXELS)
    return _checked_labels(records[:, 0], origin), records[:, 1:]


def parse_pickled(content: bytes, *, images: int, origin: str) -> tuple[Bytes, Bytes]:
    """Read a file of the Python version, a pickle, without unpickling.

    Args:
        content: The whole file: a dictionary with `labels`, a list, and `data`, an array.
        images: The number that it must have.
        origin: What to call the file in an error.

    Returns:
        As `parse_binary`.

    Raises:
        UserError: When it is damaged, has operations that such a file does not need, or other
            labels or pixels.

    Source:
        "Python version" of https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    expected = f"expected a pickle with {images:,} labels and (images, {PIXELS}) bytes. {HINT}"
    try:
        batch = read_plain_pickle(content)
    except ValueError as error:
        raise UserError(f"{origin}: cannot be read ({error}); {expected}") from error
    values = batch if isinstance(batch, dict) else {}
    labels, pixels = (values.get(key.encode(), values.get(key)) for key in ("labels", "data"))
    if not isinstance(labels, list) or not isinstance(pixels, np.ndarray):
        raise UserError(f"{origin}: is a pickle without labels and data; {expected}")
    if len(labels) != images or pixels.shape != (images, PIXELS):
        raise UserError(
            f"{origin}: has {len(labels):,} labels and data of shape {pixels.shape}; {expected}"
        )
    odd = next((at for at, one in enumerate(labels) if type(one) is not int), None)
    if odd is not None:
        raise UserError(f"{origin}: label {odd} is no integer; {expected}")
    small = np.array([min(max(label, -1), 256) for label in labels], np.int16)
    return _checked_labels(small, origin).astype(np.uint8), pixels


def _checked_labels(labels: Any, origin: str) -> Any:
    wrong = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(wrong):
        raise UserError(
            f"{origin}: image {wrong[0]} has the label {labels[wrong[0]]}; expected 0 to "
            f"{CLASSES - 1}. {HINT}"
        )
    return labels
