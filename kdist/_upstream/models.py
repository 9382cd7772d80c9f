"""Private state of models and layers, and the steps that Keras hands to a strategy."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer


def flatten_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return every layer of the model, including nested layers, each once."""
    return list(model._flatten_layers(include_self=False))


def strategy_of(model: keras.Model) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope the model was created."""
    return model._distribute_strategy


def inputs_of(model: keras.Model) -> Any:
    """Return the symbolic inputs of a Functional or Sequential model, in their structure."""
    functional = getattr(model, "_functional", model)  # of a Sequential
    return getattr(functional, "_inputs_struct", [])


def has_call(model: keras.Model) -> bool:
    """Whether the model has a `call` method; a model with custom steps may have none."""
    return type(model).call is not keras.Model.call


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """Return the model's output, called as in Keras's own steps."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool
) -> Any:
    """Return the model's loss, also if it overrides `compute_loss` with an older signature."""
    return model._compute_loss(
        x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training
    )


def metrics_of(model: keras.Model) -> list[keras.metrics.Metric]:
    """Return the metrics of a model, also the metrics that Keras adds in the first traced step."""
    config = getattr(model, "_compile_config", None)
    arguments = {} if config is None else config.config
    compiled = tf.nest.flatten([arguments.get("metrics"), arguments.get("weighted_metrics")])
    metrics = (metric for metric in compiled if isinstance(metric, keras.metrics.Metric))
    return [*model.metrics, *metrics]


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the compiled optimizer and all optimizers of custom steps.

    The optimizers are in attributes, or in lists and dictionaries in attributes.
    """
    optimizers = {
        id(value): value
        for attribute in [getattr(model, "optimizer", None), *vars(model).values()]
        for value in list_items(attribute)
        if isinstance(value, keras.optimizers.Optimizer)
    }
    return list(optimizers.values())


def list_items(value: Any) -> Iterable[Any]:
    """Return the items of a list or dictionary; of any other attribute, the attribute itself."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else [value]


def distribute(variables: Iterable[keras.Variable], strategy: tf.distribute.Strategy) -> None:
    """Copy variables that were created outside the scope to every replica, with their values."""
    for variable in variables:
        is_in_scope = strategy.extended.variable_created_in_scope(variable._value)
        if not is_in_scope and not isinstance(variable._value, tf.distribute.DistributedValues):
            with tf.init_scope(), strategy.scope():
                variable._initialize(variable._value.numpy())


class ModelStep:
    """A step that Keras passes to `strategy.run`, with its model."""

    def __init__(self, model: keras.Model, fn: Callable[..., Any]) -> None:
        self.model, self.fn = model, fn

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


def model_of_step(fn: Callable[..., Any]) -> keras.Model | None:
    """Return the model if `fn` is a step that Keras, or a user's trainer, passes to `run`."""
    if isinstance(fn, ModelStep):
        return fn.model
    if is_prediction(fn):
        return model_of_prediction(fn)
    model = getattr(fn, "__self__", None)
    is_step = getattr(fn, "__name__", "") in ("train_step", "test_step")
    return model if is_step and isinstance(model, keras.Model) else None


def is_prediction(fn: Callable[..., Any]) -> bool:
    """Whether `fn` is the closure that Keras passes to `strategy.run` to predict a batch."""
    return "TensorFlowTrainer.make_predict_function" in getattr(fn, "__qualname__", "")


def model_of_prediction(fn: Callable[..., Any]) -> keras.Model:
    """Return the model of the prediction step that Keras passes to `strategy.run`."""
    inner = inspect.unwrap(getattr(fn, "__wrapped__", fn))
    inner = getattr(inner, "python_function", inner)  # compiled with XLA
    model: keras.Model = inspect.getclosurevars(inner).nonlocals["self"]
    return model


def overridden_steps(model: keras.Model) -> list[str]:
    """Return the names of the steps that the model overrides."""
    return [
        name
        for name in ("train_step", "test_step")
        if getattr(getattr(model, name), "__func__", None) is not getattr(TensorFlowTrainer, name)
    ]
