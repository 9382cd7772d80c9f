"""`evaluate`: a table with loss and metrics of a run's newest model, or of each new model."""

import time
from collections.abc import Callable, Iterable

from ...checkpoint.checkpoint_file import DamagedCheckpointError
from ...errors import UserError
from .evaluate_options import EvaluateOptions
from .saved_models import (
    Evaluation,
    SavedModel,
    list_models,
    open_run_folder,
    read_evaluated_run,
    watch_models,
)

_LONGEST_SLEEP_SECONDS = 1e9  # `time.sleep` takes this value on all systems


def evaluate(
    path: str,
    options: EvaluateOptions | None = None,
    *,
    announce: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Evaluation]:
    """Evaluate a run's saved models on exactly all validation data, on any number of replicas.

    Of a complete run, the final model is evaluated; of any other run, the newest readable
    checkpoint, or without checkpoints the saved model. With `options.watch`, each checkpoint is
    evaluated as it appears, until the run has ended or its process on this machine was killed.

    A run of your own model is evaluated on its validation data, with its compiled loss and metrics.
    The functions are loaded from the files that the run used.

    Args:
        path: The folder of a run of `kdist train`, or its address.
        options: Options of the evaluation.
        announce: Called with each line of the table.
        sleep: Waits for the given number of seconds.

    Returns:
        The evaluations, in the order of the lines.

    Raises:
        UserError: The run has no model to evaluate, or the options do not fit the run.

    Example:
        ```python
        [result] = kdist.tools.evaluate.evaluate("runs/fast", EvaluateOptions(averaged=True))
        result.metrics["accuracy"]
        ```
    """
    options = options or EvaluateOptions()
    folder, remote = open_run_folder(path)
    name = path if remote is not None else folder
    config = options.make_config(read_evaluated_run(folder).settings)
    if options.averaged and config.model is None and config.ema_momentum is None:
        raise UserError(
            f"{name} keeps no averages of its weights: leave out --averaged, or train with"
            " --ema-momentum"
        )
    if options.watch is None and not list_models(folder):
        raise UserError(
            f"{name} has neither a checkpoint nor a model: train with --checkpoint-every, or"
            " pass --watch to wait for a checkpoint"
        )
    # Mistakes are reported before TensorFlow is imported.
    from .evaluator import Evaluator

    evaluator = Evaluator(config, averaged=options.averaged, announce=announce)
    models: Iterable[SavedModel] = list_models(folder)
    if options.watch is not None:
        seconds = min(options.watch, _LONGEST_SLEEP_SECONDS)

        def wait() -> None:
            sleep(seconds)
            if remote is not None:
                remote.download()

        models = watch_models(folder, wait)
    found: list[Evaluation] = []
    for model in models:
        try:
            evaluation = evaluator.evaluate(model)
        except DamagedCheckpointError as error:
            if model.path.exists():  # else a running training has removed it
                announce(f"Skipped the damaged checkpoint {model.path.name}: {error}")
            continue
        if not found:
            announce(evaluation.heading())
        found.append(evaluation)
        announce(str(evaluation))
        if options.watch is None:
            break
    if not found and options.watch is None:
        raise UserError(f"all checkpoints of {name} are damaged: evaluate a different run")
    return found
