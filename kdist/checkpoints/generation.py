"""`Generation`: one checkpoint of a run, a file that is named by what it holds."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from ..errors import UserError, error_text
from .state_json import json_line
from .tensor_file import read_metadata, read_tensor_file, write_tensor_file

ENDING = ".safetensors"
FORMAT = 1
_NAME = re.compile(rf"e(\d+)-b(\d+)-([0-9a-f]{{32}}){re.escape(ENDING)}")
_BLOCK = 1 << 20


class DamagedGenerationError(Exception):
    """A generation whose file is not what was written; the message says in what way."""


@dataclasses.dataclass(frozen=True, order=True, kw_only=True)
class Generation:
    """One checkpoint of a run.

    Attributes:
        epoch: The epoch that the run is in, counted from 0.
        batch: Steps of this epoch that were trained; 0 for the end of the epoch before.
        digest: The first 128 bits of the file's SHA-256, as 32 hexadecimal digits.
        path: The file.
    """

    epoch: int
    batch: int
    digest: str
    path: Path

    @classmethod
    def of_file(cls, path: Path) -> Self | None:
        """Return the generation in a file; `None` if its name is not that of one."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            return None
        epoch, batch, digest = match.groups()
        return cls(epoch=int(epoch), batch=int(batch), digest=digest, path=path)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @property
    def saved_at(self) -> float:
        """When it was committed, in seconds since 1970."""
        return self.path.stat().st_mtime

    def read(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and the state.

        Raises:
            DamagedGenerationError: They cannot be read, or are not those that were written.
            UserError: They are whole, but in a format of a newer kdist.
        """
        self.verify()
        try:
            arrays, metadata = read_tensor_file(self.path)
        except (OSError, ValueError) as error:
            raise DamagedGenerationError(str(error)) from error
        if int(metadata["format"]) > FORMAT:
            # Not damaged: to take an older one would remove it in the end.
            raise UserError(
                f"{self.path} was written by a newer version of kdist, in format"
                f" {metadata['format']}, and this version reads up to {FORMAT}: update kdist"
            )
        return arrays, json.loads(metadata["state"])

    def check_length(self) -> None:
        """Check that the file is as long as it says, without reading all of it.

        Raises:
            DamagedGenerationError: It is not, or cannot be read.
        """
        try:
            read_metadata(self.path)
        except (OSError, ValueError) as error:
            raise DamagedGenerationError(error_text(error)) from error

    def verify(self) -> None:
        """Compare the file with the digest in its name, without TensorFlow.

        Raises:
            DamagedGenerationError: They differ, or the file cannot be read.
        """
        digest = hashlib.sha256()
        try:
            with open(self.path, "rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise DamagedGenerationError(error.strerror or str(error)) from error
        if _shortened(digest) != self.digest:
            raise DamagedGenerationError("its content is not what was written")


def write_generation(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> str:
    """Write a generation's content, and return the digest for its name.

    Args:
        file: Has `write`.
        arrays: By name.
        state: A value that JSON can hold.

    Raises:
        OSError: The file cannot be written.
    """
    hashed = _Hashed(file)
    metadata = {"format": str(FORMAT), "state": json_line(state)}
    write_tensor_file(hashed, arrays, metadata)  # type: ignore[arg-type]
    return _shortened(hashed.digest)


def file_name(epoch: int, batch: int, digest: str) -> str:
    """Return the name of a generation's file."""
    return f"e{epoch:06d}-b{batch:09d}-{digest}{ENDING}"


def _shortened(digest: Any) -> str:
    return str(digest.hexdigest())[:32]


class _Hashed:
    """Hashes what is written, not what could be read back from a failing disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> None:
        self.digest.update(data)
        self._file.write(data)
