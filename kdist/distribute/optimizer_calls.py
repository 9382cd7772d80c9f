"""Change how a step applies gradients, while it is traced."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..spmd.rules.kernels import received_gradient, sent_gradient

Apply = Callable[[list[Any], Any], Any]


def with_apply(
    model: keras.Model, step: Callable[[Any], Any], replace: Callable[[Any, Apply], Apply]
) -> Callable[[Any], Any]:
    """Return a step in which the optimizer's `apply` is another function.

    Args:
        model: The compiled model.
        step: Called with a batch.
        replace: Called with the batch and the optimizer's own `apply`; returns the function of
            gradients and variables that is called instead.
    """

    def changed_step(data: Any) -> Any:
        optimizer: Any = model.optimizer
        replaced = vars(optimizer).get("apply")
        apply = replace(data, optimizer.apply)

        def changed_apply(grads: Any, trainable_variables: Any = None) -> Any:
            return apply(list(grads), trainable_variables)

        object.__setattr__(optimizer, "apply", changed_apply)
        try:
            return step(data)
        finally:
            if replaced is None:
                del vars(optimizer)["apply"]
            else:
                object.__setattr__(optimizer, "apply", replaced)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(changed_step)
    return unconverted


def rounded_gradients(
    model: keras.Model, step: Callable[[Any], Any], dtype: str
) -> Callable[[Any], Any]:
    """Return a step whose gradients are sent to other replicas in a dtype of fewer bits."""

    def replace(_batch: Any, apply: Apply) -> Apply:
        def rounded_apply(gradients: list[Any], variables: Any) -> Any:
            return apply([_rounded(gradient, dtype) for gradient in gradients], variables)

        return rounded_apply

    return with_apply(model, step, replace)


def _rounded(gradient: Any, dtype: str) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = _rounded(gradient.values, dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if gradient is None or not gradient.dtype.is_floating or gradient.dtype.size <= 2:
        return gradient
    return received_gradient(sent_gradient(gradient, dtype), gradient.dtype)
