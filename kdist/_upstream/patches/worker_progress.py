"""Tell the strategy of the steps that begin and end, as a worker that hangs does not."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
from keras.callbacks import CallbackList
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from ..hooks import Progress, hooks_of
from ..patching import Patch


def _inside(block: Callable[[Progress], AbstractContextManager[None]]) -> Callable[..., Any]:
    """Call Keras's function inside a `with` block of the strategy's progress, if it has one."""

    def call(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
        progress = _progress(model)
        if progress is None:
            return original(model, *args, **options)
        with block(progress):
            return original(model, *args, **options)

    return call


def _watched(name: str) -> Callable[..., Any]:
    return _inside(lambda progress: progress.watch(name))


def _watched_step(name: str) -> Callable[..., Any]:
    return _inside(lambda progress: progress.watch_step(name))


def _begin(original: Callable[..., None], callbacks: Any, *args: Any, **options: Any) -> None:
    """Count a step that begins once all callbacks have been called."""
    original(callbacks, *args, **options)
    progress = _progress(callbacks.model)
    if progress is not None:
        progress.step_began()


def _end(original: Callable[..., None], callbacks: Any, *args: Any, **options: Any) -> None:
    """Count a step that ends before any callback is called."""
    progress = _progress(callbacks.model)
    if progress is not None:
        progress.step_ended()
    original(callbacks, *args, **options)


def _progress(model: Any) -> Progress | None:
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    return None if hooks is None else hooks.progress


# Saving a model takes its time.
_save = _inside(lambda progress: progress.slow("saving a model"))
_STEPS = ("train_on_batch", "test_on_batch", "predict_on_batch")
_WHY = "Does not say that a step has begun or ended, by which a worker that hangs is found."
_CANARY = "test_a_worker_that_waits_does_not_say_so"

PATCHES = (
    *(
        Patch(owner=owner, name=name, replacement=replacement, why=_WHY, canary=_CANARY)
        for owner, name, replacement in (
            *((TensorFlowTrainer, name, _watched(name)) for name in ("fit", "evaluate", "predict")),
            *((TensorFlowTrainer, name, _watched_step(name)) for name in _STEPS),
            (CallbackList, "on_train_batch_begin", _begin),
            (CallbackList, "on_test_batch_begin", _begin),
            (CallbackList, "on_predict_batch_begin", _begin),
            (CallbackList, "on_train_batch_end", _end),
            (CallbackList, "on_test_batch_end", _end),
            (CallbackList, "on_predict_batch_end", _end),
            *((keras.Model, name, _save) for name in ("save", "save_weights", "export")),
        )
    ),
)
