"""Arrays of samples: NumPy's, or TensorFlow's ragged tensors."""

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..errors import UserError


def as_array(leaf: Any) -> Any:
    """Return a part of the user's data as an array, or as the ragged tensor that it is.

    Raises:
        UserError: It is neither.
    """
    if isinstance(leaf, tf.RaggedTensor):
        return leaf
    array = leaf.numpy() if isinstance(leaf, tf.Tensor) else np.asarray(leaf)
    if array.dtype == object:
        array = _as_text(array)
    if array.dtype == object or not array.ndim:
        if isinstance(leaf, tf.Tensor) and not array.ndim:
            raise UserError(
                "the dataset gives single samples: add .batch(8), as fit expects batches"
            )
        raise UserError(
            f"the data have a {type(leaf).__name__} that is no array of samples: check takes"
            " dense and ragged arrays and tensors, with the samples along the first axis"
        )
    return array


def _as_text(array: Any) -> Any:
    """Texts in an array of their own type; other objects as they are."""
    kinds = {type(value) for value in array.flat}
    if kinds and (kinds <= {str, np.str_} or kinds <= {bytes, np.bytes_}):
        return np.array(array.tolist())
    return array


def floats_in(array: Any, dtype: str) -> Any:
    """Return an array of floats in another type; others as they are."""
    if isinstance(array, tf.RaggedTensor):
        return tf.cast(array, dtype) if array.dtype.is_floating else array
    return array.astype(dtype) if array.dtype.kind == "f" else array


def joined_arrays(*parts: Any) -> Any:
    """Return the samples of several arrays in one."""
    if isinstance(parts[0], tf.RaggedTensor):
        return tf.concat(parts, axis=0)
    return np.concatenate(parts)


def samples_in(array: Any) -> int:
    """Return the number of samples in an array."""
    return int(array.nrows()) if isinstance(array, tf.RaggedTensor) else len(array)


def shape_of_sample(array: Any) -> Sequence[int | None]:
    """Return the shape of one sample, `None` where it is ragged."""
    return tuple(array.shape[1:])


def dense_parts(data: Any) -> list[Any]:
    """Return the arrays of a structure, those of ragged tensors as values and lengths of rows."""
    parts = []
    for leaf in keras.tree.flatten(data):
        if isinstance(leaf, tf.RaggedTensor):
            parts += [one.numpy() for one in (leaf.flat_values, *leaf.nested_row_lengths())]
        elif leaf is not None:
            parts.append(np.asarray(leaf))
    return parts


def rows_of(array: Any) -> list[bytes]:
    """Return the samples of an array as bytes."""
    if isinstance(array, tf.RaggedTensor):
        return [str(row).encode() for row in array.to_list()]
    return [row.tobytes() for row in np.asarray(array)]


def fingerprint(data: Any) -> str:
    """Return a text that other samples do not have."""
    digest = hashlib.sha256()
    for part in dense_parts(data):
        digest.update(f"{part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
