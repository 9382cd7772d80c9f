"""`check_file`: what `kdist check` does, before and after the trainings."""

import json
import os
from typing import Any

from ..atomic_files import (
    atomic_write,
    check_writable_folder,
    explain_write_errors,
    folder_for_files,
    output_file,
)
from ..errors import UserError
from ..launch.shares import visible_gpus
from ..user_model.code_errors import explain_errors_of
from ..user_model.names import data_name, files_of, split_name
from .options import CheckOptions

# TensorFlow is imported inside the functions: a wrong argument is answered at once.
_LEAST_WORKERS, _MOST_WORKERS = 2, 16


def check_file(
    model: str,
    data: str,
    options: CheckOptions,
    *,
    workers: int | None = None,
    json_file: str | None = None,
) -> bool:
    """Check the model of a file, print the result, and write it.

    Args:
        model: `"FILE.py:FUNCTION"`.
        data: The function that returns the data, in the same file or as `"FILE.py:FUNCTION"`.
        options: Of the check.
        workers: Also train on so many processes, all on the CPU; `None` for none.
        json_file: Where the result is written; `None` for nowhere.

    Returns:
        Whether the model is equal on all of them.

    Raises:
        UserError: An argument is invalid, or the user's code fails on one replica.
    """
    split_name(model)
    data_name(model, data)
    if workers is not None and not _LEAST_WORKERS <= workers <= _MOST_WORKERS:
        raise UserError(
            f"received --workers {workers}: pass a number from {_LEAST_WORKERS} to {_MOST_WORKERS}"
        )
    output = None if json_file is None else output_file(json_file, option="--json")
    if output is not None:
        check_writable_folder(output.parent, option="--json")
    if workers or 0 < len(visible_gpus(os.environ)) < max(options.replicas):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too few: all trainings are on the CPU
    result = _checked(model, data, options, workers)
    try:  # the file first: nobody may read what is printed to its end
        if output is not None:
            hint = "pass another --json"
            text = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
            with explain_write_errors(output, hint=hint), folder_for_files(output.parent):
                atomic_write(output, text)
    finally:
        print(result)
    equal: bool = result.equal
    return equal


def _checked(model: str, data: str, options: CheckOptions, workers: int | None) -> Any:
    import keras

    from ..user_model.functions import load_functions
    from .arrays import fingerprint
    from .check import Check, make_strategies
    from .training import Plan, Trained
    from .workers import train_on_workers

    # Before the user's file is loaded: the first tensor fixes the number of logical CPUs.
    strategies = make_strategies(options)
    keras.utils.set_random_seed(options.seed)  # the file may draw as it is loaded
    functions = load_functions(model, data)

    def on_workers(plan: Plan) -> list[Trained]:
        if workers is None:
            return []
        record = train_on_workers(
            workers,
            model=model,
            data=data,
            options=options,
            asked=plan.asked,
            evaluates=plan.evaluates,
            samples=fingerprint(check.batches.arrays),
        )
        return [Trained(record=record)]

    with explain_errors_of(*files_of(model, data)):
        check = Check(functions.build, functions.make_data, options, strategies=strategies)
        return check.result(on_workers)
