"""TensorFlow keeps for ever what a `tf.custom_gradient` closes over: the graphs of steps.

A hundred models take gigabytes so, and each collection of garbage walks all of their graphs.
"""

from tensorflow.python.framework.ops import gradient_registry


def forget_custom_gradients():
    """Let go of the graphs that were traced so far.

    What was traced goes on to run, and its gradients are part of it. Only the gradient of a
    function that had none when it was traced can no longer be taken.
    """
    names = [name for name in gradient_registry.list() if name.startswith("CustomGradient-")]
    for name in names:
        del gradient_registry._registry[name]
