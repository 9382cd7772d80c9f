"""`CheckpointFile`: a file with arrays and a state, in the format safetensors.

The name of a file has the epoch, the steps of the epoch, and the digest of the content.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from ..errors import UserError, message_without_path

FORMAT = 1
# Types that `safetensors` reads into NumPy arrays. Further types (bfloat16) are written as bytes.
_TYPE_NAMES = {
    "bool": "BOOL",
    "complex64": "C64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
}
_TYPES_OF_BYTES = "types_of_bytes"
FILE_NAME = re.compile(r"e(\d+)-b(\d+)-([0-9a-f]{32})\.safetensors")


class DamagedCheckpointError(Exception):
    """A checkpoint file is unreadable or has changed since it was written; the message says how."""


@dataclasses.dataclass(frozen=True, order=True, kw_only=True)
class CheckpointFile:
    """A checkpoint of a run.

    Attributes:
        epoch: The epoch that the run is in, counted from 0.
        batch: Trained steps of this epoch; 0 for the end of the previous epoch.
        digest: The first 128 bits of the file's SHA-256, as 32 hexadecimal digits.
        path: The file.
    """

    epoch: int
    batch: int
    digest: str
    path: Path

    @classmethod
    def of_file(cls, path: Path) -> Self | None:
        """Return the checkpoint in a file; `None` if the file is not named like a checkpoint."""
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            return None
        epoch, batch, digest = match.groups()
        return cls(epoch=int(epoch), batch=int(batch), digest=digest, path=path)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def read(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and the state.

        Raises:
            DamagedCheckpointError: The file cannot be read, or has changed since it was written.
            UserError: The file is whole, but has the format of a newer kdist.
        """
        from safetensors import SafetensorError, safe_open

        self.verify()
        try:
            with safe_open(self.path, framework="numpy") as file:
                metadata = dict(file.metadata())
                arrays = dict(_read_arrays(file, json.loads(metadata.get(_TYPES_OF_BYTES, "{}"))))
        except (OSError, ValueError, SafetensorError) as error:
            raise DamagedCheckpointError(message_without_path(error)) from error
        if int(metadata["format"]) > FORMAT:
            # Not a DamagedCheckpointError: the store would skip the file, and later remove it.
            raise UserError(
                f"{self.path} has format {metadata['format']} of a newer kdist; this version reads"
                f" up to {FORMAT}: update kdist"
            )
        return arrays, json.loads(metadata["state"])

    def verify(self) -> None:
        """Compare the file with the digest in its name, without TensorFlow.

        Raises:
            DamagedCheckpointError: The digests differ, or the file cannot be read.
        """
        try:
            with open(self.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise DamagedCheckpointError(message_without_path(error)) from error
        if _short_digest(digest) != self.digest:
            raise DamagedCheckpointError(
                "its content has changed since it was written (the digests differ)"
            )


def write_checkpoint(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> str:
    """Write a safetensors file of arrays and a JSON-compatible state; return its short digest.

    kdist writes the format itself: of the two functions of safetensors, one returns the whole file
    as bytes, and the second reports a full disk as text without its error number. The digest is
    computed from the bytes in memory: a hash of the written file would also match bytes that a
    failing disk has changed.
    """
    # Arrays with large items come first, so that each array begins at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    types = {name: arrays[name].dtype.name for name in order}
    byte_types = {name: type_ for name, type_ in types.items() if type_ not in _TYPE_NAMES}
    metadata = {
        "format": str(FORMAT),
        "state": _compact_json(state),
        _TYPES_OF_BYTES: json.dumps(byte_types),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPE_NAMES.get(array.dtype.name, "U8"),
            "shape": [*array.shape, *([array.dtype.itemsize] if name in byte_types else [])],
            "data_offsets": [begin, end],
        }
    text = _compact_json(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    header_bytes = memoryview(len(text).to_bytes(8, "little") + text)
    array_bytes = (_array_bytes(arrays[name]) for name in order)
    for content in itertools.chain([header_bytes], array_bytes):
        digest.update(content)
        file.write(content)
    return _short_digest(digest)


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _short_digest(digest: Any) -> str:
    return str(digest.hexdigest())[:32]


def _read_arrays(file: Any, byte_types: Mapping[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    import ml_dtypes  # registers bfloat16 and similar types; a dependency of Keras

    for name in file.keys():  # noqa: SIM118 - not a mapping
        array = file.get_tensor(name)
        if name in byte_types:
            kind = np.dtype(getattr(ml_dtypes, byte_types[name], byte_types[name]))
            array = array.view(kind)[..., 0]
        yield name, array


def _array_bytes(array: np.ndarray) -> memoryview:
    if not array.size:
        return memoryview(b"")
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    flat = np.ascontiguousarray(little_endian).reshape(array.size)
    return flat.view(np.uint8).data


def checkpoint_files(folder: str | os.PathLike[str]) -> list[CheckpointFile]:
    """Return the checkpoints in a folder, newest first, without reading the files.

    Args:
        folder: The folder; may be missing.

    Examples:
        ```python
        for checkpoint in kdist.checkpoint.checkpoint_files("checkpoints"):
            checkpoint.verify()
        ```
    """
    found = [CheckpointFile.of_file(path) for path in Path(folder).glob("e*-b*-*")]
    return sorted((checkpoint for checkpoint in found if checkpoint is not None), reverse=True)
