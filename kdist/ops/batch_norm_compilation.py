"""Which of batch norm's kernels are compiled by XLA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .batch_norm import Kernels
from .compilation import compiled, worth_compiling


def kernel(kernels: Kernels, name: str, x: Any) -> Callable[..., Any]:
    """The method `name` of `kernels`, compiled where that pays for inputs `x`."""
    if worth_compiling(x):
        return _compiled(kernels, name, tuple(x.shape[1:]))
    method: Callable[..., Any] = getattr(kernels, name)
    return method


# Shared by all layers with samples of one shape, and one for each shape: TensorFlow warns of a
# function that is traced for many.
@functools.lru_cache(maxsize=256)
def _compiled(kernels: Kernels, name: str, sample: tuple[int, ...]) -> Callable[..., Any]:
    del sample
    return compiled(getattr(kernels, name))
