"""Patch `GradientTape.gradient`: a step can be observed."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..patching import TENSORFLOW, Patch
from ..step_observer import step_observer


def _gradient(
    original: Callable[..., Any], tape: tf.GradientTape, target: Any, *args: Any, **options: Any
) -> Any:
    """Tell the observer of a step that its loss is computed."""
    observer = step_observer()
    if observer is not None:
        observer.forward_ended(target)
    return original(tape, target, *args, **options)


PATCHES = (
    Patch(
        owner=tf.GradientTape,
        name="gradient",
        replacement=_gradient,
        why="Does not tell `TrainingTelemetry` that the loss of a step is computed.",
        canary="test_nobody_is_told_of_a_gradient",
        seen_in=TENSORFLOW,
    ),
)
