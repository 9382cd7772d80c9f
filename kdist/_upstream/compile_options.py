"""Options of `compile` under a strategy of kdist: XLA and steps per execution.

`strategy.run` gets a step with its model, so that these options are known. A loss is computed for
the global batch, and has no scale.

Keras does not know `steps_per_execution="auto"`: the strategy chooses a number once the batches of
a fit are known. `evaluate` and `predict` run a single step per execution.
"""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss
from keras.src.trainers.trainer import Trainer, model_supports_jit

from .hooks import StrategyHooks, hooks_of
from .models import ModelStep
from .patching import replaces


def choose_steps_per_execution(
    hooks: Any, model: keras.Model, iterator: Any, global_batch: int | None
) -> None:
    """Let the strategy choose the steps per execution, once the data are known."""
    state = hooks.model_state(model)
    if state.chosen_steps is None or state.is_evaluating:
        return
    if global_batch not in state.chosen_steps:
        state.chosen_steps[global_batch] = hooks.steps_per_execution(model, global_batch)
    chosen = state.chosen_steps[global_batch]
    steps = min(chosen, iterator.num_batches or chosen)
    # A divisor of the steps per epoch: otherwise the last execution would exceed the epoch.
    if iterator.steps_per_epoch:
        steps = next(n for n in range(steps, 0, -1) if iterator.steps_per_epoch % n == 0)
    iterator.steps_per_execution = steps
    if steps != model.steps_per_execution:
        model.steps_per_execution = steps
        model.train_function = None


@replaces(
    Trainer,
    "compile",
    why='Does not support `steps_per_execution="auto"`, and forgets that `jit_compile` was "auto".',
    test="test_keras_forgets_what_was_automatic",
)
def _compile(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Accept `steps_per_execution="auto"`, and remember that XLA was left to Keras.

    Until the batches are known, there is a single step per execution; a saved model keeps this
    number. A saved model also keeps `jit_compile="auto"`, so that a model saved on a single GPU can
    be trained on any devices.
    """
    hooks = hooks_of(model)
    if hooks is None:
        return original(model, *args, **options)
    call = inspect.signature(original).bind(model, *args, **options)
    call.apply_defaults()
    requested = call.arguments
    hooks.reset(model)
    if requested["steps_per_execution"] == "auto":
        hooks.model_state(model).chosen_steps = {}
        requested["steps_per_execution"] = 1
    xla_is_automatic = requested["jit_compile"] == "auto" and not requested["run_eagerly"]
    result = original(*call.args, **call.kwargs)
    if xla_is_automatic:
        model._compile_config.config["jit_compile"] = "auto"
    return result


def _with_single_steps(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Evaluate or predict with a single step per execution, and restore the value of `fit`."""
    hooks = hooks_of(model)
    state = hooks.model_state(model) if hooks else None
    if state is None or state.chosen_steps is None or state.is_evaluating:
        return original(model, *args, **options)
    steps = model.steps_per_execution
    model.steps_per_execution = 1
    validation = getattr(model, "_eval_epoch_iterator", None)
    if validation is not None:
        validation.steps_per_execution = 1
    state.is_evaluating = True
    try:
        return original(model, *args, **options)
    finally:
        state.is_evaluating = False
        model.steps_per_execution = steps


@replaces(
    Trainer,
    "_resolve_auto_jit_compile",
    why="Leaves XLA off under a strategy, even on a single GPU: random numbers then differ from"
    " those without a strategy, which XLA draws.",
    test="test_keras_leaves_xla_off_under_a_strategy_of_one_gpu",
)
def _automatic_xla(original: Callable[..., Any], model: Any) -> Any:
    """Let the strategy choose the use of XLA, also for a model without `compile`."""
    hooks = hooks_of(model)
    return original(model) if hooks is None else hooks.automatic_xla(model_supports_jit(model))


@replaces(
    TensorFlowTrainer,
    "_make_function",
    why="Passes a step to `strategy.run` without the model, so that the strategy does not know the"
    " `compile` options of a step that is a `tf.function` or decorated.",
    test="test_a_decorated_step_does_not_say_its_model",
)
def _pass_model(original: Callable[..., Any], model: Any, step: Callable[..., Any]) -> Any:
    """Pass the model with its step to a strategy of kdist."""
    return original(model, step if hooks_of(model) is None else ModelStep(model, step))


def _keep_scale(original: Callable[..., Any], value: Any) -> Any:
    """Leave a loss as it is under a strategy of kdist, whose steps see the global batch."""
    is_exact = isinstance(tf.distribute.get_strategy(), StrategyHooks)
    return value if is_exact else original(value)


_scale_loss, _unscale_loss = (
    replaces(
        loss,
        name,
        why="Divides a loss by the number of replicas also outside of a step, as in a callback, or"
        " multiplies it.",
        test="test_a_loss_outside_of_a_step_is_divided_by_the_replicas",
    )(_keep_scale)
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution")
)

_evaluate = replaces(
    TensorFlowTrainer,
    "evaluate",
    why="Evaluates more steps than requested, up to the end of an execution.",
    test="test_several_steps_per_execution_evaluate_more_than_requested",
)(_with_single_steps)
_predict = replaces(
    TensorFlowTrainer,
    "predict",
    why="The graph contains a copy of the model for each step of an execution.",
    test="test_several_steps_per_execution_copy_the_model_for_prediction",
)(_with_single_steps)

PATCHES = (
    _compile,
    _automatic_xla,
    _pass_model,
    _scale_loss,
    _unscale_loss,
    _evaluate,
    _predict,
)
