"""How many training steps go into one execution."""

import math

import keras

from .flops import training_flops

# An execution costs Keras one to three milliseconds in Python: a few percent of this.
EXECUTION_SECONDS = 0.05
MOST_STEPS = 128
# What small layers reach, not what the devices could do.
CPU_FLOPS_PER_SECOND = 2e10
GPU_FLOPS_PER_SECOND = 2e12


def steps_per_execution(model: keras.Model, global_batch: int | None, *, on_gpus: bool) -> int:
    """Steps that take about a twentieth of a second together, by the model's arithmetic.

    Between two executions Keras runs callbacks and waits for the metrics on the host. For a small
    model that takes longer than the step itself; for a large one a single step is enough. The
    choice follows from the model and the batch alone, so that a run can be repeated.

    Args:
        model: A model that is built.
        global_batch: Samples of a step, over all replicas; `None` where that is not known.
        on_gpus: Whether it trains on GPUs.

    Returns:
        From 1 to 128; 1 where the arithmetic cannot be counted (see `training_flops`).
    """
    if global_batch is None or not model.built:
        return 1
    try:
        work = global_batch * training_flops(model)
    except Exception:  # a model that takes no single sample, such as one of a fixed batch
        return 1
    if math.isnan(work):
        return 1
    rate = GPU_FLOPS_PER_SECOND if on_gpus else CPU_FLOPS_PER_SECOND
    return round(min(max(EXECUTION_SECONDS * rate / max(work, 1.0), 1), MOST_STEPS))
