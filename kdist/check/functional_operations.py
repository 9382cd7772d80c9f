"""Operations between the layers of a Functional model, such as `h - ops.mean(h, axis=0)`."""

import contextlib
import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .layer_calls import LayerCall, observed, run_call


def mixing_operation(call: LayerCall, rows: int, tolerance: float) -> str:
    """Return the name of the function of `keras.ops` that mixes the samples; empty if none does.

    Args:
        call: Of a model whose rows depend on other samples, though those of no layer in it do.
        rows: Samples of the batch.
        tolerance: What rounding may do to a row.
    """
    calls: list[LayerCall] = []
    with contextlib.ExitStack() as stack:
        for operation in getattr(call.layer, "operations", []):
            if not isinstance(operation, keras.layers.Layer):
                stack.enter_context(observed(operation, calls))
        run_call(call, rows)
    mixing = (one.layer for one in calls if _mixes(one, rows, tolerance))
    kinds = (type(operation).__name__ for operation in mixing)
    return next((re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower() for kind in kinds), "")


def _mixes(call: LayerCall, rows: int, tolerance: float) -> bool:
    """Whether an operation computes something else of half of the samples."""
    half = rows // 2
    try:
        outputs = run_call(call, half, of=rows)
    except Exception:  # the sizes of its inputs no longer fit: they are computed from all samples
        return False
    pairs = zip(keras.tree.flatten(call.outputs), keras.tree.flatten(outputs), strict=False)
    return any(_differ(whole, part, half, tolerance) for whole, part in pairs)


def _differ(whole: Any, part: Any, half: int, tolerance: float) -> bool:
    if not isinstance(whole, tf.Tensor) or not whole.dtype.is_floating:
        return False
    if whole.shape.rank and part.shape[0] == half != whole.shape[0]:
        whole = whole[:half]
    same = whole.shape == part.shape
    return same and not np.allclose(whole, part, rtol=tolerance, atol=tolerance, equal_nan=True)
