"""Graphs: compilation with XLA, oneDNN's kernels, and custom gradients."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.ops import control_flow_util
from tensorflow.python.util import _pywrap_util_port


def is_compiled_by_xla() -> bool:
    """Whether the graph that is being traced will be compiled with XLA."""
    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def optimization_barrier(value: tf.Tensor) -> tf.Tensor:
    """Return `value` behind a barrier to XLA's simplifications; for graphs that XLA compiles."""

    @tf.custom_gradient  # the operation has no gradient of its own
    def barrier(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return gen_xla_ops.xla_optimization_barrier([value])[0], lambda upstream: upstream

    return barrier(value)


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def forget_custom_gradients() -> None:
    """Discard the graphs of custom gradients that were traced so far.

    A traced function can still be run, and its gradients are part of it. Only the gradient of a
    function that had none when it was traced can no longer be taken.
    """
    for name in list(gradient_registry.list()):
        if name.startswith("CustomGradient-"):
            gradient_registry._registry.pop(name, None)
