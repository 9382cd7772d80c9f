"""Tracing of a step as the program of one device."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager import forwardprop_util, lift_to_graph
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context, save_options

from .patching import TENSORFLOW, replaces

_thread = threading.local()
_NEW_VARIABLE = ("initial_value", "trainable", "name", "dtype", "shape")


def traced_strategy() -> Any:
    """Return the strategy for which this thread runs a one-device step; otherwise `None`."""
    strategies = getattr(_thread, "strategies", None)
    return strategies[-1] if strategies else None


def is_traced_whole() -> bool:
    """Whether this thread traces a step that will be divided: divided variables are whole in it."""
    return getattr(_thread, "traces", 0) > 0 and not tf.executing_eagerly()


def _compute_outside(value: Any) -> Any:
    """Compute a tensor of a traced step outside the step."""

    def compute() -> Any:
        return lift_to_graph.lift_to_graph([value], ops.get_default_graph())[value]

    try:
        with tf.init_scope():
            return tf.function(compute, autograph=False)()
    except lift_to_graph.UnliftableError as error:
        raise ValueError(
            "The step creates a variable whose initial value depends on the step's data. Variables"
            " are created before the step runs: initialize the variable with zeros, and assign the"
            f" initial value ({value.name}) in the first step"
        ) from error


@contextlib.contextmanager
def colocate_new_variables(variable: Any) -> Iterator[None]:
    """Inside the `with` block, create variables beside `variable`, as `colocate_vars_with` does."""

    def create(next_creator: Any, **kwargs: Any) -> Any:
        return next_creator(**{**kwargs, "colocate_with": variable})

    with tf.variable_creator_scope(create):
        yield


@contextlib.contextmanager
def one_device(strategy: Any, *, divides: bool = False) -> Iterator[None]:
    """Trace the `with` block without a strategy: a copied variable stands for its first copy.

    TensorFlow has this mode to save a model without its strategy. New variables are an exception:
    they are created in the strategy's scope, with a copy on every replica.
    """
    graph = ops.get_default_graph()
    stack = graph._distribution_strategy_stack
    options = save_options.SaveOptions(experimental_variable_policy=None)
    strategies = vars(_thread).setdefault("strategies", [])
    traces = getattr(_thread, "traces", 0)
    is_creating = False

    def create(next_creator: Any, **kwargs: Any) -> Any:
        nonlocal is_creating
        if is_creating:
            return next_creator(**kwargs)
        is_creating = True
        options = {
            name: value
            for name, value in kwargs.items()
            if name in _NEW_VARIABLE and value is not None
        }
        value = options.get("initial_value")
        if tf.is_tensor(value) and not isinstance(value, ops.EagerTensor):
            options["initial_value"] = _compute_outside(value)
        try:
            with tf.init_scope(), strategy.scope(), contextlib.ExitStack() as beside:
                if kwargs.get("colocate_with") is not None:
                    beside.enter_context(colocate_new_variables(kwargs["colocate_with"]))
                return tf.Variable(**options)
        finally:
            is_creating = False

    def leave() -> None:
        graph._distribution_strategy_stack = stack
        strategies.pop()
        _thread.traces = traces

    with contextlib.ExitStack() as contexts:
        if not strategies:
            contexts.enter_context(save_context.save_context(options))
        strategies.append(strategy)
        _thread.traces = traces + divides
        contexts.callback(leave)
        graph._distribution_strategy_stack = []
        contexts.enter_context(tf.variable_creator_scope(create))
        yield


unconverted = autograph.autograph_artifact
"""Decorator: AutoGraph leaves the function as it is, but converts the functions that it calls."""


def converted(fn: Any) -> Any:
    """Return a function converted by AutoGraph, if the caller's code is converted."""
    return autograph.tf_convert(fn, ag_ctx.control_status_ctx(), convert_by_default=False)


@replaces(
    ops,
    "_create_graph_constant",
    why="Does not tell which Python number a constant is made of: a number that was computed from"
    " `num_replicas_in_sync` before a step is wrong in the step.",
    test="test_nobody_is_told_of_the_number_of_a_constant",
    seen_in=TENSORFLOW,
)
def _graph_constant(
    original: Callable[..., Any], value: Any, dtype: Any, shape: Any, *args: Any, **options: Any
) -> Any:
    """Pass the value and the shape of a constant in a step to the strategy, which checks them."""
    constant = original(value, dtype, shape, *args, **options)
    strategy = traced_strategy()
    if strategy is not None:
        strategy.check_constant((value, shape), constant)
    return constant


@replaces(
    core,
    "remat",
    why="Calls the function again in the backward pass, where it draws different random numbers,"
    " and in a graph rejects the keyword arguments that layers pass.",
    test="test_remat_takes_no_keyword_arguments",
)
def _remat(original: Callable[..., Any], fn: Callable[..., Any]) -> Any:
    """In a step, leave a rematerialized function to the strategy of the step."""

    def call(*args: Any, **options: Any) -> Any:
        strategy = traced_strategy()
        if strategy is not None:
            return strategy.rematerialize(fn)(*args, **options)
        would_fail = options and not tf.executing_eagerly()  # as where Keras builds a model
        return (fn if would_fail else original(fn))(*args, **options)

    return call


@replaces(
    keras.layers.BatchNormalization,
    "call",
    why="Takes about thirty operations for a pass over a batch; a GPU launches a kernel for each.",
    test="test_batch_norm_has_many_operations",
)
def _batch_norm(
    original: Callable[..., Any], layer: Any, inputs: Any, training: Any = None, mask: Any = None
) -> Any:
    """In a step, leave a batch norm to the strategy of the step."""
    outputs, strategy = None, traced_strategy()
    if strategy is not None and training and layer.trainable and mask is None:
        outputs = strategy.batch_norm(layer, inputs)
    return original(layer, inputs, training, mask) if outputs is None else outputs


def has_forward_derivatives(*tensors: Any) -> bool:
    """Whether a `tf.autodiff.ForwardAccumulator` computes derivatives of one of the tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).tangents)


PATCHES = (_graph_constant, _remat, _batch_norm)
