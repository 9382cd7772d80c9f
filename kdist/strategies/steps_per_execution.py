"""Number of steps between two calls of the callbacks (`steps_per_execution="auto"`).

The number follows from the operations of the model: an execution takes about a tenth of a second.
`_upstream/compile_options.py` lowers the number to a divisor of the steps of an epoch.
"""

import math

import keras
import tensorflow as tf

from .._upstream.models import inputs_of

# Keras's overhead of 1 to 3 ms per execution is then 1 to 3 percent.
EXECUTION_SECONDS = 0.1
MOST_STEPS = 128
# Rates that small layers reach; the peak of a device is higher.
CPU_FLOPS_PER_SECOND = 2e10
GPU_FLOPS_PER_SECOND = 2e12


def steps_per_execution(model: keras.Model, global_batch: int | None, *, on_gpus: bool) -> int:
    """Estimate how many steps take about a tenth of a second together.

    Between two executions Keras runs callbacks and waits for the metrics on the host. For a small
    model the callbacks and the wait take longer than the step itself. For a large model a single
    step per execution is enough. The result depends only on the model, the batch and the kind of
    device, so that a run can be repeated.
    """
    if global_batch is None or not model.built:
        return 1
    try:
        work = global_batch * training_flops(model)
    except Exception:  # The model cannot be called with a single sample.
        return 1
    if math.isnan(work):
        return 1
    rate = GPU_FLOPS_PER_SECOND if on_gpus else CPU_FLOPS_PER_SECOND
    return round(min(max(EXECUTION_SECONDS * rate / max(work, 1.0), 1), MOST_STEPS))


def training_flops(model: keras.Model) -> float:
    """Count the floating-point operations of training on one sample.

    The result is three times the forward pass, as the backward pass computes each product twice:
    for the gradients of the weights and of the inputs (Kaplan et al. 2020, "Scaling Laws for Neural
    Language Models", section 2.1). TensorFlow's profiler counts only the smaller part of attention.
    The result is NaN if the model is neither Functional nor Sequential, has inputs of unknown
    shape, or has loops, as in a recurrent layer.
    """
    inputs = inputs_of(model)
    shapes = [x.shape[1:] for x in keras.tree.flatten(inputs)]
    if not shapes or any(None in shape for shape in shapes):
        return math.nan
    specs = keras.tree.map_structure(lambda x: tf.TensorSpec((1, *x.shape[1:]), x.dtype), inputs)
    forward = tf.function(lambda x: model(x, training=False), autograph=False)
    graph = forward.get_concrete_function(specs).graph
    if any("While" in operation.type for operation in graph.get_operations()):
        return math.nan
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    profile = tf.compat.v1.profiler.profile(graph, cmd="op", options=options)
    return 3 * float(profile.total_float_ops)
