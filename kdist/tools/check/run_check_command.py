"""`kdist check`: explain a user's training step, train it, or train built-in models."""

import os
from collections.abc import Sequence
from typing import Any

from ...errors import UserError
from ...processes.device_assignment import visible_gpus
from ...training.user_model.user_functions import (
    explain_user_errors,
    list_user_files,
    split_data_name,
    split_name,
)
from ...workers.tf_config import refuse_workers
from .check_options import CheckOptions

# TensorFlow is imported inside the functions, so that a wrong argument is reported at once.
_FIT_BATCH = 32  # Keras's default for arrays


def check_file(model: str, data: str, options: CheckOptions, *, run: bool) -> bool:
    """Explain the training step of a user's model; with `run` or `bits`, also train and compare.

    The step is explained for the first number of replicas. Returns whether training is equal.
    """
    split_name(model)
    split_data_name(model, data)
    refuse_workers(os.environ, "kdist check", instead="run it alone, with --replicas")
    run = run or options.bits
    if 0 < len(visible_gpus(os.environ)) < max(options.replicas):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too few GPUs: everything runs on the CPU
    import keras

    from ...training.user_model.user_functions import load_functions
    from .check_model import make_strategies, run_check

    # The strategies are created before the user's file creates tensors, and the seed is set before
    # the file draws numbers.
    strategies = make_strategies(options)
    keras.utils.set_random_seed(options.seed)
    functions = load_functions(model, data)
    with explain_user_errors(*list_user_files(model, data)):
        print(_explain_step(functions, strategies[0], options), flush=True)
        if not run:
            return True
        result = run_check(functions, strategies, options)
    print(f"\n{result}")
    return result.equal


def _explain_step(functions: Any, strategy: Any, options: CheckOptions) -> Any:
    """Explain the model's step on a batch of the size that `fit` would use."""
    import tensorflow as tf

    from ...training.user_model.user_data import take_first_samples
    from .check_batches import iterate_batches
    from .explain import explain

    size = options.batch_size or _FIT_BATCH
    data = functions.load_data(size)
    functions.check_batch(data, options.batch_size)
    model = strategy.build(functions.make_model)
    if data.has_arrays:
        return explain(model, take_first_samples(data.training, size))
    is_dataset = isinstance(data.training, tf.data.Dataset)
    return explain(model, data.training if is_dataset else next(iterate_batches(data.training)))


def check_devices(replicas: Sequence[int] | None) -> bool:
    """Train built-in models on the devices of this machine, and print whether each is equal.

    `None` stands for all GPUs, or two logical CPUs. Returns whether all models are equal.
    """
    gpus = len(visible_gpus(os.environ))
    if replicas is None and gpus == 1:
        raise UserError(
            "this machine has one GPU, and a check compares several replicas: set"
            " CUDA_VISIBLE_DEVICES=-1 to split the CPU instead"
        )
    options = CheckOptions(replicas=replicas or (gpus or 2,), steps=4, batch_size=12)
    import tensorflow as tf

    from .built_in_models import BUILT_IN_MODELS
    from .check_model import make_strategies, run_check

    strategies = make_strategies(options)
    on_cpus = strategies[0].devices[0].startswith("CPU")
    # Whether a GPU rounds products to TensorFloat-32 depends on their shapes.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    devices = max((strategy.devices for strategy in strategies), key=len)
    equal_count = 0
    for number, (name, functions) in enumerate(BUILT_IN_MODELS.items()):
        result = run_check(functions, strategies, options, float64=on_cpus)
        if number == 0:
            print(f"{', '.join(devices)}; {result.precision}")
        print(f"  {name:28} {'equal' if result.equal else 'NOT EQUAL'}", flush=True)
        if not result.equal:
            print("\n".join(f"  {line}" for line in str(result).splitlines()[2:]), flush=True)
        equal_count += result.equal
    print(f"{equal_count} of {len(BUILT_IN_MODELS)} models match one replica of stock Keras")
    return equal_count == len(BUILT_IN_MODELS)
