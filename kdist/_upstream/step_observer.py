"""See what a training step computes: outputs of layers, the loss, gradients and updates."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import keras
import tensorflow as tf


class StepObserver(Protocol):
    """Sees a training step while it is traced."""

    recorded: int
    """Number of outputs that were seen so far."""

    def layer_called(self, layer: keras.layers.Layer, outputs: Any) -> None:
        """Called with the outputs of a layer none of whose sublayers has been seen."""

    def forward_ended(self, target: Any) -> None:
        """Called with what gradients are about to be taken of."""

    def before_update(self, gradients: list[Any], variables: list[Any], optimizer: Any) -> Any:
        """Called with the gradients of the global batch; the result is for `after_update`."""

    def after_update(self, before: Any) -> None:
        """Called when the optimizer has updated the variables."""


_thread = threading.local()


def step_observer() -> StepObserver | None:
    """Return the observer of the current thread's step; `None` if nobody observes it."""
    return getattr(_thread, "observer", None)


@contextlib.contextmanager
def observe_step(observer: StepObserver | None) -> Iterator[None]:
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
