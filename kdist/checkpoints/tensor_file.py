"""Arrays and text as one safetensors file, written piece by piece."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

# What `safetensors` reads into NumPy arrays. Any other type (bfloat16) is written as bytes.
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


def write_tensor_file(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write a file in the safetensors format, without a copy of all arrays in memory.

    The library's own writers return the whole file as bytes, or report a full disk as text without
    its error number.

    Args:
        file: Has `write`.
        arrays: By name; of any shape and type.
        metadata: Text by name.

    Raises:
        OSError: The file cannot be written.
    """
    # Wide numbers first, so that each array begins at a multiple of its numbers' size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    of_bytes = {n: arrays[n].dtype.name for n in order if arrays[n].dtype.name not in _TYPE_NAMES}
    header: dict[str, Any] = {"__metadata__": {**metadata, _TYPES_OF_BYTES: json.dumps(of_bytes)}}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPE_NAMES.get(array.dtype.name, "U8"),
            "shape": _shape_of_bytes(array) if name in of_bytes else list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(_bytes_of(arrays[name]))


def read_tensor_file(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read what `write_tensor_file` wrote.

    Returns:
        The arrays and the text, each by name.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is not a whole safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays = dict(_in_their_types(file, json.loads(metadata.pop(_TYPES_OF_BYTES, "{}"))))
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return arrays, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """Read the text that `write_tensor_file` wrote, without the arrays, of a file of whole length.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is not as long as it says.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _in_their_types(file: Any, of_bytes: Mapping[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    for name in file.keys():  # noqa: SIM118 - not a mapping
        array = file.get_tensor(name)
        if name in of_bytes:
            array = array.view(_named_type(of_bytes[name]))[..., 0]
        yield name, array


def _named_type(name: str) -> np.dtype:
    import ml_dtypes  # registers bfloat16 and the like; comes with Keras

    return np.dtype(getattr(ml_dtypes, name, name))


def _shape_of_bytes(array: np.ndarray) -> list[int]:
    return [*array.shape, array.dtype.itemsize]


def _bytes_of(array: np.ndarray) -> memoryview:
    if not array.size:
        return memoryview(b"")
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    flat = np.ascontiguousarray(little_endian).reshape(math.prod(array.shape))
    return flat.view(np.uint8).data
