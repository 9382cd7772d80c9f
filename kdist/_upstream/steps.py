"""Steps that are traced: as the program of one device, and observed."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context, save_options

from .patching import TENSORFLOW, Patch

_thread = threading.local()
_NEW_VARIABLE = ("initial_value", "trainable", "name", "dtype", "shape")


def traced_strategy() -> Any:
    """Return the strategy for which this thread runs a step as that of one device; else `None`."""
    strategies = getattr(_thread, "strategies", None)
    return strategies[-1] if strategies else None


def is_traced_whole() -> bool:
    """Whether this thread traces a step that will be divided: a divided variable is a whole one."""
    return getattr(_thread, "traces", 0) > 0 and not tf.executing_eagerly()


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
def made_beside(variable: Any) -> Iterator[None]:
    """Tell the strategy beside which variable others are made, as `colocate_vars_with` does."""

    def create(next_creator: Any, **kwargs: Any) -> Any:
        return next_creator(**{**kwargs, "colocate_with": variable})

    with tf.variable_creator_scope(create):
        yield


@contextlib.contextmanager
def one_device(strategy: Any, *, divides: bool = False) -> Iterator[None]:
    """Let there be no strategy, and let a variable with a copy on every replica be its first copy.

    TensorFlow has this mode for saving a model without its strategy. Variables that the step makes
    get a copy on every replica.

    Args:
        strategy: The strategy.
        divides: Whether what is traced here will be divided over the replicas.
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
        options = {k: v for k, v in kwargs.items() if k in _NEW_VARIABLE and v is not None}
        value = options.get("initial_value")
        if tf.is_tensor(value) and not isinstance(value, ops.EagerTensor):
            options["initial_value"] = _lifted(value)  # the variable is made outside the step
        try:
            with tf.init_scope(), strategy.scope(), contextlib.ExitStack() as beside:
                if kwargs.get("colocate_with") is not None:
                    beside.enter_context(made_beside(kwargs["colocate_with"]))
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
        if not tf.executing_eagerly():
            contexts.enter_context(tf.variable_creator_scope(create))
        yield


unconverted = autograph.autograph_artifact
"""Keeps AutoGraph from converting a function itself; what it calls is converted as before."""


def converted(fn: Any) -> Any:
    """Return a function as AutoGraph converts it, if the caller's code is converted."""
    return autograph.tf_convert(fn, ag_ctx.control_status_ctx(), convert_by_default=False)


def step_observer() -> Any:
    """Return the `TracedStep` of the current thread's step; `None` if nobody observes it."""
    return getattr(_thread, "observer", None)


@contextlib.contextmanager
def observe_step(observer: Any) -> Iterator[None]:
    """Make `observer` that of the current thread inside the `with` block."""
    before = step_observer()
    _thread.observer = observer
    try:
        yield
    finally:
        _thread.observer = before


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return a layer's variables that may be trained, without those of its sublayers."""
    return list(layer._trainable_variables)


def attach_observers(
    layers: Iterable[keras.layers.Layer], optimizers: Iterable[keras.optimizers.Optimizer]
) -> None:
    """Tell the observer of a step about calls of these layers and optimizers, until detached."""
    for layer in layers:
        if "call" not in vars(layer):
            object.__setattr__(layer, "call", _observed_call(layer, layer.call))
    for optimizer in optimizers:
        if "apply" not in vars(optimizer):
            object.__setattr__(optimizer, "apply", _observed_apply(optimizer, optimizer.apply))


def detach_observers(
    layers: Iterable[keras.layers.Layer], optimizers: Iterable[keras.optimizers.Optimizer]
) -> None:
    """Undo `attach_observers`."""
    for name, owners in (("call", layers), ("apply", optimizers)):
        for owner in owners:
            if hasattr(vars(owner).get(name), "observed"):
                del vars(owner)[name]


def _observed_call(layer: keras.layers.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
    @tf.autograph.experimental.do_not_convert
    @functools.wraps(call)
    def observed_call(*args: Any, **options: Any) -> Any:
        observer = step_observer()
        if observer is None:
            return call(*args, **options)
        before = observer.recorded
        outputs = call(*args, **options)
        if observer.recorded == before:
            observer.layer_called(layer, outputs)
        return outputs

    observed_call.observed = True
    marked: Callable[..., Any] = observed_call
    return marked


def _observed_apply(
    optimizer: keras.optimizers.Optimizer, apply: Callable[..., None]
) -> Callable[..., None]:
    @tf.autograph.experimental.do_not_convert
    @functools.wraps(apply)
    def observed_apply(grads: Any, trainable_variables: Any = None) -> None:
        observer = step_observer()
        if observer is None:
            return apply(grads, trainable_variables)
        variables = list(trainable_variables or optimizer._trainable_variables)
        gradients = list(grads)
        with observe_step(None):  # what an optimizer does with others inside it is no step
            before = observer.before_update(gradients, variables, optimizer)
            apply(gradients, variables)
            observer.after_update(before)
        return None

    observed_apply.observed = True
    marked: Callable[..., None] = observed_apply
    return marked


def _gradient(
    original: Callable[..., Any], tape: tf.GradientTape, target: Any, *args: Any, **options: Any
) -> Any:
    """Tell the observer of a step that its loss is computed."""
    observer = step_observer()
    if observer is not None:
        observer.forward_ended()
    return original(tape, target, *args, **options)


def _graph_constant(
    original: Callable[..., Any], value: Any, dtype: Any, shape: Any, *args: Any, **options: Any
) -> Any:
    """Show the strategy the numbers of a constant that its step makes, and those of its shape."""
    constant = original(value, dtype, shape, *args, **options)
    strategy = traced_strategy()
    if strategy is not None:
        strategy.constant_made((value, shape), constant)
    return constant


PATCHES = (
    Patch(
        owner=ops,
        name="_create_graph_constant",
        replacement=_graph_constant,
        why="Does not tell which Python number a constant is made of: one that was computed from"
        " `num_replicas_in_sync` before a step is wrong in it.",
        test="test_nobody_is_told_of_the_number_of_a_constant",
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=tf.GradientTape,
        name="gradient",
        replacement=_gradient,
        why="Does not tell `TrainingTelemetry` that the loss of a step is computed.",
        test="test_nobody_is_told_of_a_gradient",
        seen_in=TENSORFLOW,
    ),
)
