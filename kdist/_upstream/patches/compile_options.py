"""`compile`, and the steps that `evaluate` and `predict` take in one execution."""

import inspect
from collections.abc import Callable
from typing import Any

from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer, model_supports_jit

from ..hooks import hooks_of
from ..patching import Patch


def _compile(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Knows `steps_per_execution="auto"`, and XLA by itself on the only GPU of a strategy.

    One step an execution, until the batches are known. A file says what was asked for, so that
    what was saved on one GPU is trained on wherever it is opened.
    """
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, *args, **options)
    call = inspect.signature(original).bind(model, *args, **options)
    call.apply_defaults()
    asked = call.arguments
    hooks.reset(model)
    if asked["steps_per_execution"] == "auto":
        hooks.auto_steps(model).chosen = {}
        asked["steps_per_execution"] = 1
    xla_is_automatic = (
        asked["jit_compile"] == "auto" and hooks.automatic_xla and not asked["run_eagerly"]
    )
    if xla_is_automatic:
        asked["jit_compile"] = bool(model_supports_jit(model))
    outcome = original(*call.args, **call.kwargs)
    if xla_is_automatic:
        model._compile_config.config["jit_compile"] = "auto"
    return outcome


def _step_by_step(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Evaluates and predicts one step an execution, and forgets nothing of a fit under way."""
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
    """Takes one step an execution, and XLA on the only GPU for a model that is not compiled."""
    hooks = hooks_of(model)
    if hooks is not None and hooks.automatic_xla and model._jit_compile is None:
        model.jit_compile = bool(model_supports_jit(model))
    return _step_by_step(original, model, *args, **options)


PATCHES = (
    Patch(
        owner=Trainer,
        name="compile",
        replacement=_compile,
        why='There is no `steps_per_execution="auto"`, and `jit_compile="auto"` leaves XLA off'
        " under any strategy, also on its only GPU.",
        canary="test_keras_leaves_xla_off_under_a_strategy_of_one_gpu",
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="evaluate",
        replacement=_step_by_step,
        why="Evaluates more than the steps that were asked for, to the end of an execution.",
        canary="test_several_steps_an_execution_evaluate_more_than_was_asked_for",
    ),
    Patch(
        owner=TensorFlowTrainer,
        name="predict",
        replacement=_predict,
        why="Puts as many copies of the model into the graph as an execution has steps.",
        canary="test_several_steps_an_execution_predict_with_as_many_copies_of_the_model",
    ),
)
