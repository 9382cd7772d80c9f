"""The process of a worker of `kdist check --workers`: `python -m kdist.check.worker TASK`."""

import dataclasses
import sys

from ..errors import UserError, handle_failure
from ..user_model.code_errors import reason_of
from .workers import OTHER_SAMPLES, PREFIX, WorkerTask, save


def main() -> None:
    """Train as one of several workers; the chief writes its record."""
    task = WorkerTask.from_json(sys.argv[1])
    try:
        _train(task)
    except Exception as error:
        print(f"{PREFIX}{reason_of(error)}", file=sys.stderr)
        handle_failure(error, 1)
        sys.exit(1)


def _train(task: WorkerTask) -> None:
    from ..distribute.multi_worker_strategy import MultiWorkerMirroredStrategy

    # Before the user's file is loaded, which may make a tensor.
    strategy = MultiWorkerMirroredStrategy(replicas=1)
    import keras

    from ..user_model.functions import load_functions
    from .arrays import fingerprint
    from .check import Check
    from .training import train

    keras.utils.set_random_seed(task.options.seed)  # the file may draw as it is loaded
    functions = load_functions(task.model, task.data)
    check = Check(functions.build, functions.make_data, task.options, strategies=())
    if fingerprint(check.batches.arrays) != task.samples:
        raise UserError(OTHER_SAMPLES)
    plan = dataclasses.replace(check.plan(task.asked), evaluates=task.evaluates)
    trained = train(plan, strategy, name=f"{strategy.workers} workers of kdist")
    if strategy.is_chief:
        save(task.record, trained.record)


if __name__ == "__main__":
    main()
