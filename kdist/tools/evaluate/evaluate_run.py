"""`evaluate`: a table with loss and metrics of a run's newest model, or of each new model."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import is_remote
from ...checkpoint.checkpoint_file import CheckpointFile, DamagedCheckpointError, checkpoint_files
from ...checkpoint.folder_lock import is_abandoned
from ...errors import UserError, message_without_path
from ...remote import RemoteFolder, folder_address
from ...training.run_folder import REMOTE_FILES, find_saved_model
from ...training.run_record import RunRecord, read_run
from .evaluate_options import EvaluateOptions

if TYPE_CHECKING:
    from .evaluator import Evaluation, SavedModel

_LONGEST_SLEEP_SECONDS = 1e9  # `time.sleep` takes this value on all systems


def evaluate(
    path: str,
    options: EvaluateOptions | None = None,
    *,
    announce: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> "list[Evaluation]":
    """Evaluate a run's saved models on exactly all validation data, on any number of replicas.

    If the run is complete, its final model is evaluated; otherwise its newest readable checkpoint,
    or the saved model if there is no checkpoint. With `options.watch`, each checkpoint is evaluated
    as it appears, until the run has ended or its process on this machine was killed.

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

    Examples:
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
            # A checkpoint that is missing now was removed by the running training.
            if isinstance(model, CheckpointFile) and model.path.exists():
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


def open_run_folder(path: str) -> tuple[Path, RemoteFolder | None]:
    """Return a run's folder and `None`; of a remote run, the local copy and the remote folder.

    Raises:
        UserError: There is no such folder.
    """
    address = folder_address("the run", path)
    if is_remote(address):
        remote = RemoteFolder(address, REMOTE_FILES)
        remote.download()
        if not (remote.local / "config.json").is_file():
            raise UserError(f"cannot evaluate {address}: a run's config.json is missing there")
        return remote.local, remote
    folder = Path(address)
    if not os.path.isdir(folder):  # unlike `Path`, takes any path
        raise UserError(
            f"{folder} is not a folder: pass the folder that kdist train has printed; for a"
            " model file, call kdist.load_model(path, strategy=...).evaluate(...)"
        )
    return folder, None


def read_evaluated_run(folder: Path) -> RunRecord:
    """Read a run, which may be unfinished; raise `UserError` if it cannot be read."""
    try:
        return read_run(folder, unfinished=True)
    except (UserError, OSError) as error:
        raise UserError(f"cannot evaluate {folder}: {message_without_path(error)}") from error


def list_models(folder: Path) -> "list[SavedModel]":
    """Return models, the newest first; the final model of a complete run is the newest."""
    final = find_saved_model(folder)
    checkpoints = checkpoint_files(folder / "checkpoints")
    if final is None:
        return [*checkpoints]
    is_complete = read_evaluated_run(folder).status == "complete"
    return [final, *checkpoints] if is_complete else [*checkpoints, final]


def watch_models(folder: Path, wait: Callable[[], None]) -> "Iterator[SavedModel]":
    """Yield each checkpoint as it appears, and at the end the final model."""
    seen: set[Path] = set()
    was_abandoned = False
    while True:
        # Look for the end of the run first: files that were saved before the end are then seen. A
        # run that saves its model, or is about to resume, holds no lock: look a second time.
        is_without_lock = is_abandoned(folder / "checkpoints")
        has_ended = _has_result(folder) or (is_without_lock and was_abandoned)
        was_abandoned = is_without_lock
        for checkpoint in reversed(checkpoint_files(folder / "checkpoints")):
            if checkpoint.path not in seen:
                seen.add(checkpoint.path)
                yield checkpoint
        if has_ended:
            break
        wait()
    final = find_saved_model(folder)
    if final is not None and _has_result(folder):
        yield final


def _has_result(folder: Path) -> bool:
    """Whether the run has ended with a result; resuming a run removes its result."""
    return (folder / "summary.json").is_file()
