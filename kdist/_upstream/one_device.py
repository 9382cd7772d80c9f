"""Run a step as the program of one device, although its variables have a copy on every replica."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context, save_options

_thread = threading.local()
_NEW_VARIABLE = ("initial_value", "trainable", "name", "dtype", "shape")


def traced_strategy() -> Any:
    """Return the strategy for which this thread runs a step as that of one device; else `None`."""
    strategies = getattr(_thread, "strategies", None)
    return strategies[-1] if strategies else None


def divides_step() -> bool:
    """Whether the step that this thread traces will be divided over several replicas."""
    strategy = traced_strategy()
    return strategy is not None and strategy.extended._num_replicas_in_sync > 1


def _lifted(value: Any) -> Any:
    """Compute a tensor of a traced step outside it."""

    def compute() -> Any:
        return lift_to_graph.lift_to_graph([value], ops.get_default_graph())[value]

    try:
        with tf.init_scope():
            return tf.function(compute, autograph=False)()
    except lift_to_graph.UnliftableError as error:
        raise ValueError(
            "A variable that a step makes has an initial value that depends on the step's data,"
            " and exists on every replica before the step runs: make it with zeros, and assign the"
            f" value of {value.name} in the first step"
        ) from error


@contextlib.contextmanager
def one_device(strategy: Any) -> Iterator[None]:
    """Let there be no strategy, and let a variable with a copy on every replica be its first copy.

    TensorFlow has this mode for saving a model without its strategy. Variables that the step makes
    get a copy on every replica.
    """
    graph = ops.get_default_graph()
    stack = graph._distribution_strategy_stack
    options = save_options.SaveOptions(experimental_variable_policy=None)
    strategies = vars(_thread).setdefault("strategies", [])
    is_creating = False

    def create(next_creator: Any, **kwargs: Any) -> Any:
        nonlocal is_creating
        if is_creating:
            return next_creator(**kwargs)
        is_creating = True
        options = {k: v for k, v in kwargs.items() if k in _NEW_VARIABLE and v is not None}
        value = options.get("initial_value")
        if tf.is_tensor(value) and not isinstance(value, ops.EagerTensor):
            options["initial_value"] = _lifted(value)  # the variable is made outside the step
        try:
            with tf.init_scope(), strategy.scope():
                return tf.Variable(**options)
        finally:
            is_creating = False

    def leave() -> None:
        graph._distribution_strategy_stack = stack
        strategies.pop()

    with contextlib.ExitStack() as contexts:
        if not strategies:
            contexts.enter_context(save_context.save_context(options))
        strategies.append(strategy)
        contexts.callback(leave)
        graph._distribution_strategy_stack = []
        if not tf.executing_eagerly():
            contexts.enter_context(tf.variable_creator_scope(create))
        yield


unconverted = autograph.autograph_artifact
"""Keeps AutoGraph from converting a function itself; what it calls is converted as before."""


def converted(fn: Any) -> Any:
    """Return a function as AutoGraph converts it, if the caller's code is converted."""
    return autograph.tf_convert(fn, ag_ctx.control_status_ctx(), convert_by_default=False)
