"""Patch `compile`, and the steps per execution of `evaluate` and `predict`."""

import inspect
from collections.abc import Callable
from typing import Any

from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer, model_supports_jit

from ..hooks import hooks_of
from ..patching import Patch


def _compile(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Accept `steps_per_execution="auto"`, and turn on XLA automatically on a single GPU.

    Until the batches are known, there is one step per execution. A saved model keeps the requested
    value, so that a model saved on one GPU can be trained on any devices.
    """
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, *args, **options)
    call = inspect.signature(original).bind(model, *args, **options)
    call.apply_defaults()
    requested = call.arguments
    hooks.reset(model)
    if requested["steps_per_execution"] == "auto":
        hooks.auto_steps(model).chosen = {}
        requested["steps_per_execution"] = 1
    xla_is_automatic = (
        requested["jit_compile"] == "auto" and hooks.automatic_xla and not requested["run_eagerly"]
    )
    if xla_is_automatic:
        requested["jit_compile"] = bool(model_supports_jit(model))
    result = original(*call.args, **call.kwargs)
    if xla_is_automatic:
        model._compile_config.config["jit_compile"] = "auto"
    return result


def _with_single_steps(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Evaluate or predict with one step per execution, and restore the value of `fit`."""
    hooks = hooks_of(model)
    auto = hooks.auto_steps(model) if hooks else None
    if auto is None or auto.chosen is None or auto.is_evaluating:
        return original(model, *args, **options)
    steps = model.steps_per_execution
    model.steps_per_execution = 1
    validation = getattr(model, "_eval_epoch_iterator", None)
    if validation is not None:
        validation.steps_per_execution = 1
    auto.is_evaluating = True
    try:
        return original(model, *args, **options)
    finally:
        auto.is_evaluating = False
        model.steps_per_execution = steps


def _predict(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Predict with one step per execution, and with XLA on a single GPU if not compiled."""
    hooks = hooks_of(model)
    if hooks is not None and hooks.automatic_xla and model._jit_compile is None:
        model.jit_compile = bool(model_supports_jit(model))
    return _with_single_steps(original, model, *args, **options)


PATCHES = (
    Patch(
        owner=Trainer,
        name="compile",
        replacement=_compile,
        why='Does not support `steps_per_execution="auto"`. `jit_compile="auto"` does not turn on'
        " XLA under a strategy, even on a single GPU.",
        canary="test_keras_leaves_xla_off_under_a_strategy_of_one_gpu",
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="evaluate",
        replacement=_with_single_steps,
        why="Evaluates more steps than requested, up to the end of an execution.",
        canary="test_several_steps_per_execution_evaluate_more_than_requested",
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="predict",
        replacement=_predict,
        why="The graph contains a copy of the model for each step of an execution.",
        canary="test_several_steps_per_execution_copy_the_model_for_prediction",
    ),
)
