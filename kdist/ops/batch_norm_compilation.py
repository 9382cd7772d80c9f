"""Compile batch norm's kernels with XLA where that is faster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .batch_norm import Kernels
from .compilation import compiled, worth_compiling


def kernel(kernels: Kernels, name: str, x: Any) -> Callable[..., Any]:
    """Return the method `name` of `kernels`, compiled if that is faster for inputs `x`."""
    if worth_compiling(x):
        return _compiled(kernels, name, tuple(x.shape[1:]))
    method: Callable[..., Any] = getattr(kernels, name)
    return method


# One function per sample shape, shared by all layers: TensorFlow warns about a function that is
# traced for many shapes.
@functools.lru_cache(maxsize=256)
def _compiled(kernels: Kernels, name: str, sample: tuple[int, ...]) -> Callable[..., Any]:
    del sample
    return compiled(getattr(kernels, name))
