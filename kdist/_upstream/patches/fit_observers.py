"""How a callback learns of the other callbacks, and of the end of a fit that failed."""

import threading
from collections.abc import Callable
from typing import Any

from keras.callbacks import CallbackList
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from ..hooks import FitObserver, hooks_of
from ..patching import Patch

_thread = threading.local()


def _fit(original: Callable[..., Any], model: Any, *args: Any, **options: Any) -> Any:
    """Tells those that observe the fit of its end, whatever ends it."""
    fits: list[list[FitObserver]] = vars(_thread).setdefault("fits", [])
    fits.append([])
    try:
        return original(model, *args, **options)
    finally:
        for observer in fits.pop():
            observer.fit_ended()


def _begin(original: Callable[..., Any], callbacks: Any, logs: Any = None) -> None:
    """Puts the observers last, behind Keras's own, and tells them of the others."""
    observers = [one for one in callbacks.callbacks if isinstance(one, FitObserver)]
    hooks = hooks_of(callbacks.model)
    if hooks is not None:
        # One that resumes alone would wait for the others, which train.
        names = ", ".join(type(one).__name__ for one in observers)
        hooks.compare_workers("the start of fit", {"the callback that resumes it": names or None})
    callbacks.callbacks.sort(key=lambda one: isinstance(one, FitObserver))
    fits = vars(_thread).get("fits")
    for observer in observers:
        if fits:
            fits[-1].append(observer)
        observer.fit_begins([one for one in callbacks.callbacks if one is not observer])
    original(callbacks, logs)


PATCHES = (
    Patch(
        owner=TensorFlowTrainer,
        name="fit",
        replacement=_fit,
        why="Does not tell callbacks that an error has ended `fit`.",
        canary="test_a_callback_does_not_learn_that_a_fit_has_failed",
    ),
    Patch(
        owner=CallbackList,
        name="on_train_begin",
        replacement=_begin,
        why="Calls `History` and the progress bar after a callback that needs the state of all"
        " callbacks, and does not tell a callback which others there are.",
        canary="test_history_is_called_after_a_users_callbacks",
    ),
)
