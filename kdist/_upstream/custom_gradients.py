"""Free what TensorFlow keeps for ever of a `tf.custom_gradient`: the graph that it was traced in.

A hundred models take gigabytes so, and each collection of garbage walks all of their graphs.
"""

import contextlib
from collections.abc import Collection, Iterator

from tensorflow.python.framework.ops import gradient_registry


def custom_gradients() -> list[str]:
    """Return the names under which TensorFlow keeps them."""
    return [name for name in gradient_registry.list() if name.startswith("CustomGradient-")]


def forget_custom_gradients(*, keep: Collection[str] = ()) -> None:
    """Let go of the graphs that were traced so far.

    What was traced can still be run, and its gradients are part of it. Only the gradient of a
    function that had none when it was traced can no longer be taken.

    Args:
        keep: Names that are kept, as `custom_gradients` returned them before.
    """
    for name in {*custom_gradients()} - {*keep}:
        gradient_registry._registry.pop(name, None)


@contextlib.contextmanager
def temporary_custom_gradients() -> Iterator[None]:
    """Forget the custom gradients that are traced inside the `with` block when it ends."""
    before = custom_gradients()
    try:
        yield
    finally:
        forget_custom_gradients(keep=before)
