"""Private names of Keras that are read or called, and not changed."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses.loss import apply_mask
from keras.src.random.seed_generator import (
    GLOBAL_SEED_GENERATOR,
    SeedGenerator,
    global_seed_generator,
)
from tensorflow.python.ops import control_flow_util
from tensorflow.python.util import _pywrap_util_port

from .replica_local_variables import flatten_optimizers


def flatten_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Every layer of the model, nested ones too, each once."""
    return list(model._flatten_layers(include_self=False))


def stock_step(fn: Callable[..., Any]) -> tuple[keras.Model, str] | None:
    """The model and `"train_step"`, `"test_step"` or `"predict_step"`, if `fn` is Keras's own.

    Keras hands `strategy.run` the bound method for the first two, and a closure for prediction.
    """
    model = getattr(fn, "__self__", None)
    for name in ("train_step", "test_step"):
        if getattr(fn, "__func__", None) is getattr(TensorFlowTrainer, name):
            return model, name
    if "TensorFlowTrainer.make_predict_function" in getattr(fn, "__qualname__", ""):
        return model_of_prediction(fn), "predict_step"
    return None


def model_of_prediction(fn: Callable[..., Any]) -> keras.Model:
    """The model whose prediction step Keras hands to `strategy.run`."""
    inner = inspect.unwrap(getattr(fn, "__wrapped__", fn))
    inner = getattr(inner, "python_function", inner)  # compiled by XLA
    model: keras.Model = inspect.getclosurevars(inner).nonlocals["self"]
    return model


def takes_any_batch(model: keras.Model) -> bool:
    """Whether the model was built for batches of a size that is not known."""
    inputs = keras.tree.flatten(inputs_of(model))
    return bool(inputs) and all(one.shape[0] is None for one in inputs)


def global_seed(strategy: tf.distribute.Strategy) -> SeedGenerator:
    """The generator behind `seed=None`, with a copy on every replica: a step makes no variables."""
    with tf.init_scope(), strategy.scope():
        generator = global_seed_generator()
        distribute([generator.state], strategy)
    return generator


def use_global_seed(generator: SeedGenerator) -> None:
    """Have this thread use the generator too: Keras keeps one for each thread."""
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)


def own_step(fn: Callable[..., Any]) -> tuple[keras.Model, str] | None:
    """The model whose user wrote the step `fn`, and `"own_step"`; `None` for other functions."""
    model = getattr(fn, "__self__", None)
    name = getattr(fn, "__name__", "")
    is_step = isinstance(model, keras.Model) and name in ("train_step", "test_step")
    return (model, "own_step") if is_step and stock_step(fn) is None else None


def overridden_steps(model: keras.Model) -> list[str]:
    """Names of the steps that the model's user wrote."""
    return [name for name in ("train_step", "test_step") if not stock_step(getattr(model, name))]


def is_overwritten(variable: keras.Variable) -> bool:
    """Whether what the optimizer gets for a gradient is the variable's next value."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def layer_states(model: keras.Model) -> list[tuple[keras.layers.Layer, keras.Variable]]:
    """Variables that a model and its layers keep, neither weights nor batch norm's statistics."""
    return [
        (layer, variable)
        for layer in [model, *flatten_layers(model)]
        if not isinstance(layer, keras.layers.BatchNormalization)
        for variable in layer._non_trainable_variables
    ]


def has_call(model: keras.Model) -> bool:
    """Whether the model can be called; one with steps of its own may do without."""
    return type(model).call is not keras.Model.call


def computes_stock_metrics(model: keras.Model) -> bool:
    """Whether the model's logs are those of its metrics, and no others."""
    return type(model).compute_metrics is TensorFlowTrainer.compute_metrics


def call_model(model: keras.Model, x: Any, *, training: bool) -> Any:
    """The model's output, as Keras's own steps call it."""
    return model(x, training=training) if model._call_has_training_arg else model(x)


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, *, training: bool
) -> Any:
    """The model's loss, also where it overrides `compute_loss` with an older signature."""
    return model._compute_loss(
        x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training
    )


def effective_sample_weight(sample_weight: Any, mask: Any, dtype: Any, reduction: str) -> Any:
    """The weights by which Keras multiplies a loss's values."""
    if mask is not None:
        mask = keras.ops.convert_to_tensor(mask, dtype=dtype)
    return apply_mask(sample_weight, mask, dtype=dtype, reduction=reduction)


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric behind `loss` in the logs."""
    return model._loss_tracker


def with_attributes_of(source: Any, tensor: Any, convert: Callable[[Any], Any]) -> Any:
    """The tensor with what Keras attached to another one, converted.

    That is the mask, and behind a softmax or sigmoid the logits that its losses compute with.
    """
    for name in ("_keras_mask", "_keras_logits"):
        value = getattr(source, name, None)
        if value is not None:
            setattr(tensor, name, convert(value))
    return tensor


def is_compiled_by_xla() -> bool:
    """Whether the graph that is being traced is one for XLA as a whole."""
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def inputs_of(model: keras.Model) -> Any:
    """The symbolic inputs of a Functional or Sequential model, structured as it takes them."""
    functional = getattr(model, "_functional", model)  # of a Sequential
    return getattr(functional, "_inputs_struct", [])


def scope_of(model: keras.Model) -> tf.distribute.Strategy | None:
    """The strategy in whose scope the model was made."""
    return model._distribute_strategy


def distribute(variables: Iterable[keras.Variable], strategy: tf.distribute.Strategy) -> None:
    """Give variables that were made outside the scope a copy on every replica, value kept."""
    for variable in variables:
        if not isinstance(variable._value, tf.distribute.DistributedValues):
            with tf.init_scope(), strategy.scope():
                variable._initialize(variable._value.numpy())


def set_strategy(optimizer: keras.optimizers.Optimizer, strategy: tf.distribute.Strategy) -> None:
    """Tell an optimizer made outside the scope which strategy its variables are made for."""
    for one in flatten_optimizers(optimizer):
        one._distribution_strategy = strategy


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """The compiled optimizer and those that a step of the user's has in attributes."""
    found = {
        id(value): value
        for value in [model.optimizer, *vars(model).values()]
        if isinstance(value, keras.optimizers.Optimizer)
    }
    return list(found.values())
