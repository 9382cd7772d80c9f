"""`kdist check`: explain a user's training step, train it, or train built-in models."""

import json
import os
from collections.abc import Sequence
from typing import Any

from ...errors import UserError
from ...files import (
    atomic_write,
    check_writable_folder,
    explain_write_errors,
    folder_for_files,
    output_file,
)
from ...launch.device_assignment import visible_gpus
from ...training.user_model.data import first_samples
from ...training.user_model.functions import data_name, explain_errors_of, files_of, split_name
from ...workers.place import worker_place
from .check_options import CheckOptions

# TensorFlow is imported inside the functions, so that a wrong argument is reported at once.
_FIT_BATCH = 32  # Keras's default for arrays


def check_file(
    model: str, data: str, options: CheckOptions, *, run: bool, json_file: str | None = None
) -> bool:
    """Explain the training step of a user's model, and with `run` compare its training.

    Args:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data, in the same file or as `"FILE.py:FUNCTION"`.
        options: Options of the check. The step is explained for the first number of replicas.
        run: Whether to train the model. `options.bits` also trains it.
        json_file: Path for the result as JSON; `None` for no file.

    Returns:
        Whether training is equal on all numbers of replicas; true without training.

    Raises:
        UserError: An argument is invalid, or the user's code fails on one replica.
    """
    split_name(model)
    data_name(model, data)
    _check_output(json_file)
    place, run = worker_place(os.environ), run or options.bits
    if place.workers > 1 and not run:
        raise UserError("received several workers without --run: a step is explained on one")
    if 0 < len(visible_gpus(os.environ)) < max(options.replicas) and place.workers == 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too few GPUs: everything runs on the CPU
    import keras

    from ...training.user_model.functions import load_functions
    from .training import make_strategies, run_check

    # The strategies are made before the user's file makes tensors, and the seed is set before it
    # draws.
    strategies = make_strategies(options.replicas, place.workers, options.shards)
    keras.utils.set_random_seed(options.seed)
    functions = load_functions(model, data)
    found: dict[str, Any] = {}
    with explain_errors_of(*files_of(model, data)):
        if place.workers == 1:
            explained = _explained(functions, strategies[0], options)
            print(explained, *([""] * run), sep="\n", flush=True)
            found["step"] = explained.to_dict()
        if run:
            result = run_check(functions, strategies, options)
            found |= result.to_dict()
    if place.is_chief:
        _write(json_file, found)
        if run:
            print(result)
    return not run or result.equal


def _explained(functions: Any, strategy: Any, options: CheckOptions) -> Any:
    """Explain the model's step on a batch of the size that `fit` would use."""
    import tensorflow as tf

    from .batches import batches_in
    from .explain import explain

    size = options.batch_size or _FIT_BATCH
    data = functions.load_data(size)
    functions.check_batch(data, options.batch_size)
    model = strategy.build(functions.make_model)
    if data.has_arrays:
        return explain(model, first_samples(data.training, size))
    is_dataset = isinstance(data.training, tf.data.Dataset)
    return explain(model, data.training if is_dataset else next(batches_in(data.training)))


def check_devices(replicas: Sequence[int] | None, *, json_file: str | None = None) -> bool:
    """Train built-in models on the devices of this machine, and print whether each is equal.

    Args:
        replicas: Numbers of replicas; `None` for all GPUs, or two logical CPUs.
        json_file: Path for the result as JSON; `None` for no file.

    Returns:
        Whether all models are equal.

    Raises:
        UserError: There are too few devices.
    """
    _check_output(json_file)
    gpus = len(visible_gpus(os.environ))
    if replicas is None and gpus == 1:
        raise UserError(
            "there is one GPU, and nothing to compare it with: set CUDA_VISIBLE_DEVICES=-1 to split"
            " the CPU instead"
        )
    options = CheckOptions(replicas=replicas or (gpus or 2,), steps=4, batch_size=12)
    import tensorflow as tf

    from .cases import CASES
    from .training import make_strategies, run_check

    strategies = make_strategies(options.replicas)
    on_cpus = strategies[0].devices[0].startswith("CPU")
    # Whether a GPU rounds products to TensorFloat-32 depends on their shapes.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    results: dict[str, Any] = {}
    devices = max((strategy.devices for strategy in strategies), key=len)
    for name, functions in CASES.items():
        result = run_check(functions, strategies, options, float64=on_cpus)
        if not results:
            print(f"{', '.join(devices)}; {result.precision}")
        print(f"  {name:28} {'equal' if result.equal else 'NOT EQUAL'}", flush=True)
        if not result.equal:
            print("\n".join(f"  {line}" for line in str(result).splitlines()[2:]), flush=True)
        results[name] = result
    equal = all(result.equal for result in results.values())
    count = sum(result.equal for result in results.values())
    cases = {name: result.to_dict() for name, result in results.items()}
    _write(json_file, {"equal": equal, "devices": devices, "cases": cases})
    print(f"{count} of {len(results)} are equal to one replica of stock Keras")
    return equal


def _check_output(json_file: str | None) -> None:
    if json_file is not None:
        check_writable_folder(output_file(json_file, option="--json").parent, option="--json")


def _write(json_file: str | None, found: dict[str, Any]) -> None:
    if json_file is None:
        return
    output = output_file(json_file, option="--json")
    text = json.dumps(found, indent=2, allow_nan=False) + "\n"
    hint = "pass another --json"
    with explain_write_errors(output, hint=hint), folder_for_files(output.parent):
        atomic_write(output, text)
