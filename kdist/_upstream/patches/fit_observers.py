"""How a callback learns of the other callbacks, and of the end of a fit that failed."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from keras.callbacks import CallbackList

from ..hooks import FitObserver, hooks_of
from ..patching import Patch

_thread = threading.local()


@contextlib.contextmanager
def observed_fit() -> Iterator[None]:
    """Tell those that observe the fit in the `with` block of its end, whatever ends it."""
    fits: list[list[FitObserver]] = vars(_thread).setdefault("fits", [])
    fits.append([])
    try:
        yield
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
        owner=CallbackList,
        name="on_train_begin",
        replacement=_begin,
        why="Calls History and the progress bar after a callback that has to see their values, and"
        " tells no callback about the others.",
        canary="test_history_is_called_after_a_users_callbacks",
    ),
)
