"""`evaluate`: the accuracy of a run's newest model, of each new one, or of a file."""

import functools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..checkpoint.store import DamagedCheckpointError
from ..errors import UserError
from ..training.config import TrainConfig
from .evaluate_options import EvaluateOptions
from .saved_model import (
    Evaluation,
    RunModels,
    SavedModel,
    find_models,
    settings_of,
)

if TYPE_CHECKING:
    from .evaluators import Evaluator, OwnEvaluator

    _Evaluator: TypeAlias = Evaluator | OwnEvaluator

# TensorFlow is imported inside the functions: what the caller has to fix is reported before.

_MOST_SECONDS = 1e9  # that `time.sleep` takes on all systems
# A process that resumes the run may be about to take its folder.
_ABANDONED_SECONDS = 60


def evaluate(
    path: str,
    options: EvaluateOptions | None = None,
    *,
    announce: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Evaluation]:
    """Evaluate saved models on exactly all test images, on any number of replicas.

    For a run, it evaluates the final model, or else the newest complete checkpoint. With
    `options.watch`, it evaluates each checkpoint as it appears, and returns when the run has ended,
    or when its process on this machine was killed.

    A run of your own model is evaluated on its validation data, with the loss and the metrics that
    the model is compiled with; its functions are loaded from where the run found them.

    Args:
        path: The folder of a run of `kdist train`, or a `.keras` file. The data set and settings
            are those of the run, also for a file in its folder.
        options: How they are evaluated, and on which data.
        announce: Called with each line of the table.
        sleep: Waits for the given number of seconds.

    Returns:
        The evaluations, in the order of the lines.

    Raises:
        UserError: There is nothing to evaluate, or it cannot be evaluated in this way.

    Example:
        ```python
        [result] = kdist.evaluation.evaluate("runs/fast", EvaluateOptions(averaged=True))
        result.accuracy
        ```
    """
    options = options or EvaluateOptions()
    found = find_models(path, options)
    settings = found.settings if isinstance(found, RunModels) else settings_of(found.path)
    config = options.config(settings)
    if options.data is not None and config.model is None:
        raise UserError(
            f"received --data {options.data}, but {path} is not a run of your own model: remove it."
            " To evaluate a model file on your data, call model.evaluate of"
            " model = kdist.load_model(path, strategy=...)"
        )
    if isinstance(found, RunModels):
        if options.averaged and config.model is None and config.ema_momentum is None:
            raise UserError(
                f"{found.folder} keeps no averages of its weights: remove --averaged, or train with"
                " --ema-momentum"
            )
        if options.watch is None and not found.checkpoints() and found.final() is None:
            raise UserError(
                f"{found.folder} has neither a checkpoint nor a model: train with"
                " --checkpoint-every, or pass --watch to wait for one"
            )
    evaluator = _make_evaluator(config, options, announce)
    table = _Table(evaluator, announce)
    if isinstance(found, SavedModel):
        table.add(found)
    elif options.watch is None:
        _evaluate_newest(found, table)
    else:
        seconds = min(options.watch, _MOST_SECONDS)
        looks = max(2, math.ceil(_ABANDONED_SECONDS / seconds))
        if not _watch(found, table, functools.partial(sleep, seconds), abandoned_after=looks):
            announce(
                f"{found.folder} has no result, and its process has ended: continue it with"
                f" kdist train --resume {found.folder}"
            )
    return table.lines


def _make_evaluator(
    config: TrainConfig, options: EvaluateOptions, announce: Callable[[str], None]
) -> "_Evaluator":
    if config.model is not None:
        from .evaluators import OwnEvaluator

        return OwnEvaluator(config, averaged=options.averaged)
    from .evaluators import Evaluator

    return Evaluator(config, averaged=options.averaged, announce=announce)


class _Table:
    """Evaluates models, and announces a line for each."""

    def __init__(self, evaluator: "_Evaluator", announce: Callable[[str], None]) -> None:
        self.lines: list[Evaluation] = []
        self._evaluator = evaluator
        self._announce = announce

    def add(self, saved: SavedModel) -> bool:
        """Evaluate a model, and return whether it could be read."""
        try:
            line = self._evaluator.evaluate(saved)
        except DamagedCheckpointError as error:
            if saved.path.exists():  # else a training that runs has removed it meanwhile
                self._announce(f"Skipped the damaged checkpoint {saved.path.name}: {error}")
            return False
        if not self.lines:
            self._announce(line.heading())
        self.lines.append(line)
        self._announce(str(line))
        return True


def _evaluate_newest(run: RunModels, table: _Table) -> None:
    """Evaluate the model of a run that is complete, else its newest checkpoint."""
    final = run.final()
    if final is not None and run.is_complete() and table.add(final):
        return
    if any(table.add(one) for one in run.checkpoints()):
        return
    if final is None:
        raise UserError(f"none of the checkpoints of {run.folder} is whole")
    table.add(final)


def _watch(
    run: RunModels, table: _Table, wait: Callable[[], None], *, abandoned_after: int
) -> bool:
    """Evaluate each checkpoint as it appears, in the end the model.

    Args:
        run: The run.
        table: What evaluates them.
        wait: Waits until the next look.
        abandoned_after: Looks in a row at a run without a process that end it.

    Returns:
        Whether the run has ended, rather than been killed.
    """
    seen, has_waited, abandoned = set(), False, 0
    while True:
        has_ended = run.has_ended()  # asked first: what is saved before the end is seen then
        for one in reversed(run.checkpoints()):
            if one.path.name not in seen:
                seen.add(one.path.name)
                table.add(one)
        final = run.final()
        if has_ended and (final is not None or has_waited or not run.saves_model()):
            break
        has_waited = has_ended  # the model is saved behind the result
        abandoned = abandoned + 1 if run.is_abandoned() else 0
        if abandoned == abandoned_after:
            return False
        wait()
    if final is not None:
        table.add(final)
    return True
