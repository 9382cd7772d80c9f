"""`evaluate`: a table with loss and metrics of a run's newest model, or of each new model."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from annotated_types import Ge, Gt

from ...checkpoint.store import DamagedCheckpointError
from ...errors import UserError
from ...fields import Folder, check_fields
from ...training.config import TrainConfig
from .saved_models import (
    Evaluation,
    SavedModel,
    new_models,
    newest_models,
    read_run_record,
    run_folder,
)

_MOST_SECONDS = 1e9  # `time.sleep` takes this many on all systems


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Evaluation.

    Attributes:
        data_dir: Folder of the data set; by default that of the run.
        replicas: Number of replicas; by default every GPU, or the CPU if there is none.
        val_batch_size: Samples per step and replica; by default the run's.
        averaged: Evaluate the averaged weights of checkpoints.
        watch: Look for new checkpoints every this many seconds, evaluate each, and end with the
            run; by default, evaluate the newest model.

    Raises:
        UserError: An option is out of range.
    """

    data_dir: Folder | None = None
    replicas: Annotated[int, Ge(1)] | None = None
    val_batch_size: Annotated[int, Ge(1)] | None = None
    averaged: bool = False
    watch: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def config(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return a run's settings with the data folder, batch size and devices of these options."""
        own = {"data_dir": self.data_dir, "val_batch_size": self.val_batch_size}
        given = {name: value for name, value in own.items() if value is not None}
        # The shards that the run was trained with need not be a multiple of the number of replicas.
        devices = {"replicas": self.replicas, "shards": None}
        whole = {"shard_optimizer": False, "shard_weights": False}
        return TrainConfig.from_dict({**settings, "run_dir": None, **devices, **whole, **given})


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
    folder = run_folder(path)
    config = options.config(read_run_record(folder).settings)
    if options.averaged and config.model is None and config.ema_momentum is None:
        raise UserError(
            f"{folder} keeps no averages of its weights: remove --averaged, or train with"
            " --ema-momentum"
        )
    if options.watch is None and not newest_models(folder):
        raise UserError(
            f"{folder} has neither a checkpoint nor a model: train with --checkpoint-every, or"
            " pass --watch to wait for one"
        )
    # Mistakes are reported before TensorFlow is imported.
    from .evaluator import Evaluator

    evaluator = Evaluator(config, averaged=options.averaged, announce=announce)
    models: Iterable[SavedModel] = newest_models(folder)
    if options.watch is not None:
        seconds = min(options.watch, _MOST_SECONDS)
        models = new_models(folder, lambda: sleep(seconds))
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
            return found
    if options.watch is None:
        raise UserError(f"none of the checkpoints of {folder} is whole")
    return found
