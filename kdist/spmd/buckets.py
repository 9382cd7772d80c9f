"""Buckets: the tensors that replicas exchange together, as one vector.

`Program._call_stage` decides when the sums are exchanged, and in which order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

BUCKET_BYTES = 25 * 2**20
"""Bytes of a bucket on one machine, as in PyTorch's DistributedDataParallel."""
_MOST_COPIED_ELEMENTS = 16384
"""Without collectives, tensors of up to this many elements share a bucket."""


def choose_buckets(
    tensors: Sequence[Any], is_collective: Callable[[Any], bool], limit: float
) -> list[list[int]]:
    """Return the indices of the tensors of each bucket, of at most `limit` bytes.

    Strings, tensors of an unknown shape and large tensors that no collective exchanges have a
    bucket of their own.
    """
    kinds: list[Any] = []
    for index, tensor in enumerate(tensors):
        elements = tensor.shape.num_elements()
        most = math.inf if is_collective(tensor) else _MOST_COPIED_ELEMENTS
        may_share = elements is not None and elements <= most and tensor.dtype != tf.string
        kinds.append(tensor.dtype.name if may_share else index)
    sizes = [(tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in tensors]
    return fill_buckets(kinds, sizes, limit)


def fill_buckets(kinds: Sequence[Any], sizes: Sequence[int], limit: float) -> list[list[int]]:
    """Return the indices of the tensors of each bucket: tensors of a kind, up to `limit` bytes.

    A tensor of more bytes has a bucket of its own.
    """
    buckets: dict[Any, list[list[int]]] = {}
    for index, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        of_kind = buckets.setdefault(kind, [])
        if not of_kind or sum(sizes[i] for i in of_kind[-1]) + size > limit:
            of_kind.append([])
        of_kind[-1].append(index)
    return [bucket for of_kind in buckets.values() for bucket in of_kind]


def split_bucket(vector: Any, members: Sequence[Any]) -> list[Any]:
    """Return tensors of the members' shapes from a vector, or from each vector of a stack."""
    pieces = tf.split(vector, [part.shape.num_elements() for part in members], -1)
    return [
        tf.reshape(piece, [*vector.shape[:-1], *part.shape])
        for piece, part in zip(pieces, members, strict=True)
    ]
