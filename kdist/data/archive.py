"""Archives of the files of a data set, and whether one is as published."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .sources import HINT

_CHUNK = 2**20


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An archive of all files, as published.

    Attributes:
        name: Its file name.
        size: Its bytes.
        algorithm: Of `hashlib`, for its checksum.
        checksum: In hexadecimal.
    """

    name: str
    size: int
    algorithm: str
    checksum: str


def verify_archive(
    path: Path, archive: Archive, *, origin: str | None = None, hint: str = HINT
) -> None:
    """Compare an archive's size and checksum with the published ones.

    Args:
        path: The file.
        archive: What it has to be.
        origin: What to call the file in an error, by default its path.
        hint: What to advise in an error.

    Raises:
        UserError: They differ.
        OSError: It cannot be read.
    """
    origin = origin or str(path)
    size = path.stat().st_size
    if size != archive.size:
        raise UserError(f"{origin}: has {size:,} bytes; expected {archive.size:,}. {hint}")
    digest = hashlib.new(archive.algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != archive.checksum:
        raise UserError(
            f"{origin}: has {archive.algorithm.upper()} {digest.hexdigest()}; expected "
            f"{archive.checksum}, so it is damaged or another file. {hint}"
        )
