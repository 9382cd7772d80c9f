"""The model that a user's function returns: checks, and the learning rate."""

from typing import Any

import keras
import tensorflow as tf

from ..._upstream.models import has_call, optimizers_of
from ...errors import UserError
from ...optimizers.scaling import scale_learning_rate
from .user_functions import explain_exception


def check_model_result(model: Any, *, function: str = "build()") -> keras.Model:
    """Check that the result of a user's function is a compiled model, and return it."""
    if isinstance(model, keras.Model) and model.compiled:
        return model
    kind = type(model).__name__
    if isinstance(model, keras.Model):
        kind += " that is not compiled"
    raise UserError(
        f"{function} returned {kind}, expected a compiled keras.Model: call"
        " model.compile(...), and end the function with `return model`"
    )


def scale_compiled_rate(
    model: keras.Model, *, global_batch: int, reference_batch: int, rule: Any
) -> None:
    """Scale the learning rate that a model was compiled with; schedules stay unchanged.

    The arguments have the meaning of `kdist.scale_learning_rate`.
    """
    for optimizer, inner in _optimizers_with_rate(model):
        inner.learning_rate = scale_learning_rate(
            float(inner.learning_rate.numpy()),
            global_batch=global_batch,
            reference_batch=reference_batch,
            rule=rule,
            optimizer=optimizer,
        )


def set_compiled_rate(model: keras.Model, rate: float) -> None:
    """Set the learning rate of a model's optimizer, unless it has a schedule."""
    for optimizer, inner in _optimizers_with_rate(model):
        if optimizer is model.optimizer:
            inner.learning_rate = rate


def read_compiled_rate(model: keras.Model) -> float:
    """Return the learning rate that a model was compiled with; the initial rate of a schedule."""
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def _optimizers_with_rate(model: keras.Model) -> list[tuple[Any, Any]]:
    """Return pairs of optimizer and inner optimizer, for optimizers without a schedule."""
    pairs = [
        (optimizer, getattr(optimizer, "inner_optimizer", optimizer))
        for optimizer in optimizers_of(model)
    ]
    # A schedule's configuration is a dictionary.
    return [pair for pair in pairs if not isinstance(pair[1].get_config()["learning_rate"], dict)]


def check_input(
    model: Any, data: Any, *, what: str = "training data", function: str = "build()"
) -> None:
    """Raise `UserError` if a model rejects the shapes of the data; unknown shapes are accepted.

    Args:
        model: The model that the user's function returned.
        data: Arrays (x, y), or batches.
        what: Noun for the data, for the error message.
        function: The user's function, for the error message.
    """
    spec = _input_spec(data) if has_call(model) else None
    if spec is None:
        return
    try:
        model(spec)
    except Exception as error:
        raise UserError(
            f"the model of {function} rejects the shapes of the {what}: {explain_exception(error)}"
        ) from error


def _input_spec(data: Any) -> Any:
    """Return symbolic inputs with the shapes of the data; `None` if the shapes are unknown."""
    x = data
    if isinstance(data, tf.data.Dataset):
        x = data.element_spec
    elif not isinstance(data, tuple):
        return None
    if isinstance(x, tuple):
        x = x[0]
    try:
        return keras.tree.map_structure(_make_symbolic, x)
    except (AttributeError, TypeError, ValueError):
        return None  # Keras converts data that are not arrays


def _make_symbolic(array: Any) -> Any:
    if isinstance(array, tf.TypeSpec) and not isinstance(array, tf.TensorSpec):
        raise TypeError("a model takes ragged and sparse tensors in its own way")
    dtype = getattr(array.dtype, "name", str(array.dtype))
    return keras.KerasTensor((None, *array.shape[1:]), dtype)
