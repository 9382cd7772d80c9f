"""`evaluate`: a table with loss and metrics of a run's newest model, or of each new model."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...checkpoint.store import DamagedCheckpointError
from ...errors import UserError
from .evaluate_options import EvaluateOptions
from .run_models import Evaluation, RunModels, SavedModel

if TYPE_CHECKING:
    from .evaluator import Evaluator

_MOST_SECONDS = 1e9  # `time.sleep` takes this many on all systems


def evaluate(
    path: str,
    options: EvaluateOptions | None = None,
    *,
    announce: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Evaluation]:
    """Evaluate a run's saved models on exactly all validation data, on any number of replicas.

    The final model is evaluated; without a final model, the newest complete checkpoint. With
    `options.watch`, each checkpoint is evaluated as it appears, until the run has ended or its
    process on this machine was killed.

    A run of your own model is evaluated on its validation data, with the loss and metrics that the
    model is compiled with. The functions are loaded from the files that the run used.

    Args:
        path: The folder of a run of `kdist train`.
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
    run = RunModels(path)
    config = options.config(run.settings)
    if options.averaged and config.model is None and config.ema_momentum is None:
        raise UserError(
            f"{run.folder} keeps no averages of its weights: remove --averaged, or train with"
            " --ema-momentum"
        )
    if options.watch is None and not run.newest():
        raise UserError(
            f"{run.folder} has neither a checkpoint nor a model: train with --checkpoint-every, or"
            " pass --watch to wait for one"
        )
    # Mistakes are reported before TensorFlow is imported.
    from .evaluator import Evaluator

    evaluator = Evaluator(config, averaged=options.averaged, announce=announce)
    table = _Table(evaluator, announce)
    if options.watch is None:
        if not any(table.add(model) for model in run.newest()):
            raise UserError(f"none of the checkpoints of {run.folder} is whole")
    else:
        seconds = min(options.watch, _MOST_SECONDS)
        _watch(run, table, lambda: sleep(seconds))
    return table.lines


class _Table:
    """Evaluates models, and announces a line for each model."""

    def __init__(self, evaluator: "Evaluator", announce: Callable[[str], None]) -> None:
        self.lines: list[Evaluation] = []
        self._evaluator = evaluator
        self._announce = announce

    def add(self, model: SavedModel) -> bool:
        """Evaluate a model; return whether the model could be read."""
        try:
            line = self._evaluator.evaluate(model)
        except DamagedCheckpointError as error:
            if model.path.exists():  # else a running training has removed it
                self._announce(f"Skipped the damaged checkpoint {model.path.name}: {error}")
            return False
        if not self.lines:
            self._announce(line.heading())
        self.lines.append(line)
        self._announce(str(line))
        return True


def _watch(run: RunModels, table: _Table, wait: Callable[[], None]) -> None:
    """Evaluate each checkpoint as it appears, and at the end the final model."""
    seen: set[str] = set()
    had_ended = False
    while True:
        has_ended = run.has_ended()  # asked first, so that files saved before the end are seen
        for model in reversed(run.checkpoints()):
            if model.path.name not in seen:
                seen.add(model.path.name)
                table.add(model)
        final = run.final()
        # The run saves its model after its result, so the loop looks for the model a last time.
        if has_ended and (final is not None or had_ended):
            break
        had_ended = has_ended
        wait()
    if final is not None:
        table.add(final)
