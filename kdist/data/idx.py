"""The file format of MNIST and its relatives, read strictly."""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from .sources import HINT


def parse_idx(
    content: bytes, *, shape: tuple[int, ...], origin: str, hint: str = HINT
) -> npt.NDArray[np.uint8]:
    """Read an idx file of unsigned bytes that must have the given shape.

    An idx file is two zero bytes, the type (8: unsigned byte), the number of dimensions, each
    dimension as a big-endian 32-bit number, and the values in row-major order.

    Args:
        content: The whole uncompressed file.
        shape: The dimensions it must declare.
        origin: What to call the file in an error.
        hint: What to advise in an error.

    Returns:
        A read-only array over `content`.

    Raises:
        UserError: When the type, the dimensions or the length is another one.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), shape=(2,), origin="labels")
        array([7, 9], dtype=uint8)

    Source:
        The last section of http://yann.lecun.com/exdb/mnist/.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    if content[: len(header)] != header:
        raise UserError(
            f"{origin}: starts with {content[: len(header)].hex() or 'nothing'}; expected "
            f"{header.hex()}, an idx file of unsigned bytes of shape {shape}. {hint}"
        )
    length = len(header) + int(np.prod(shape))
    if len(content) != length:
        raise UserError(
            f"{origin}: holds {'more than' if len(content) > length else 'only'} "
            f"{min(len(content), length):,} bytes; expected {length:,}. {hint}"
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def read_idx(
    path: Path, *, shape: tuple[int, ...], sha256: str, origin: str = "", hint: str = HINT
) -> npt.NDArray[np.uint8]:
    """Read and verify an idx file, compressed by gzip where its name ends in `.gz`.

    Args:
        path: The file.
        shape: The dimensions it must declare.
        sha256: SHA-256 of the uncompressed file, in hexadecimal; so compressing it again, as
            distributions do, changes nothing.
        origin: What to call the file in an error, by default its path.
        hint: What to advise in an error.

    Returns:
        A read-only array of `shape`.

    Raises:
        UserError: When the file cannot be read or is not the expected one.
    """
    origin = origin or str(path)
    # One value more than expected shows that a file is too long, however long it is.
    limit = 4 + 4 * len(shape) + int(np.prod(shape)) + 1
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(limit)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{origin}: cannot be read ({error}); expected an idx file of shape {shape}. {hint}"
        ) from error
    array = parse_idx(content, shape=shape, origin=origin, hint=hint)
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise UserError(
            f"{origin}: the content has SHA-256 {digest}; expected {sha256}, so it is damaged or "
            f"another data set. {hint}"
        )
    return array
