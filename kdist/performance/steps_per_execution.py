"""Choose how many training steps go into one execution."""

import math

import keras

from .flops import training_flops

# An execution costs Keras one to three milliseconds of Python: one to three percent of this.
EXECUTION_SECONDS = 0.1
MOST_STEPS = 128
# Rates that small layers reach, not the peak of the devices.
CPU_FLOPS_PER_SECOND = 2e10
GPU_FLOPS_PER_SECOND = 2e12


def steps_per_execution(model: keras.Model, global_batch: int | None, *, on_gpus: bool) -> int:
    """Estimate how many steps take about a tenth of a second together.

    Between two executions Keras runs callbacks and waits for the metrics on the host. For a small
    model this takes longer than the step itself; for a large one a single step is enough. The
    choice depends only on the model and the batch, so that a run can be repeated.

    Args:
        model: A built model.
        global_batch: Samples per step, over all replicas; `None` if unknown.
        on_gpus: Whether it trains on GPUs.

    Returns:
        From 1 to 128; 1 if the operations cannot be counted (see `training_flops`).
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
