"""`ReplicaTuner`: a KerasTuner tuner whose trials train on a strategy's replicas."""

import contextlib
import dataclasses
import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import keras
import keras_tuner
from rich.console import Console

from .._upstream.internals import temporary_custom_gradients
from .._upstream.keras_tuner import BestSaver, HookedTuner, oracle_file, save_best_in
from ..callbacks import Checkpoint, PrintThroughput, PrintTotalTime, StopAtNonFinite
from ..callbacks.resumable import ResumableCallback
from ..callbacks.stop_at_accuracy import StopAtAccuracy
from ..checkpoint.store import checkpoint_files
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..files import atomic_link, atomic_path, atomic_write, full_disk_error
from ..signals import Received, hold_signals
from ..tracking.tracker import ended
from ..user_model.functions import reason_of as explain
from .console import Progress
from .search_oracles import total_trials
from .search_processes import ENDED_BY, running_marker
from .search_settings import (
    OF_VALIDATION,
    Objective,
    best_epoch,
    check_time_budget,
    missing_metric,
    target_metrics,
)
from .search_trials import describe, in_order


class SearchError(UserError, keras_tuner.errors.FatalError):
    """A mistake that every trial would repeat: it ends the search."""


def reason_of(error: BaseException) -> str:
    """Explain in one line why a trial failed."""
    return explain(error, plain=(keras_tuner.errors.FailedTrialError,))


def fail_unless_finite(results: Any, objective: str) -> None:
    """Fail a trial whose objective is NaN or infinite.

    Args:
        results: What `keras_tuner.Tuner.run_trial` returned.
        objective: The name of its objective.

    Raises:
        keras_tuner.FailedTrialError: The objective is not finite.
    """
    for result in results if isinstance(results, list) else [results]:
        value = result.get(objective) if isinstance(result, Mapping) else result
        if isinstance(value, Real) and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(f"{objective} was {value:g}")


@contextlib.contextmanager
def end_at_full_disk(folder: str) -> Iterator[None]:
    """End the search if the block finds its disk full, as every further trial would fail.

    Args:
        folder: The one of the trials, for errors without a file name.

    Raises:
        SearchError: The disk is full.
    """
    try:
        yield
    except SearchError:
        raise
    except (Exception, SystemExit) as error:
        full = full_disk_error(error)
        if full is None:
            raise
        path = getattr(full, "filename", None) or folder
        raise SearchError(
            f"cannot write {path}, as the disk is full: free some space, and run the same command"
            " again"
        ) from error


def fail_if_it_ended_a_process(trial_id: str) -> None:
    """Fail the trial during which the previous process of this worker died.

    Raises:
        keras_tuner.errors.FailedTrialError: It is this trial.
    """
    ended, _, reason = os.environ.get(ENDED_BY, "").partition("=")
    if ended == trial_id:
        raise keras_tuner.errors.FailedTrialError(reason)


class BestWeights:
    """Keeps the weights of the best epoch over the executions of a trial.

    KerasTuner has all executions write one file, so that one which continues an execution of
    another trial could not find the best weights of that one.

    Args:
        file: What KerasTuner loads.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._best: BestSaver | None = None
        self._current: BestSaver | None = None

    def begin_execution(self, folder: Path, callbacks: Sequence[Any]) -> list[Any]:
        """Return the callbacks, of which KerasTuner's then saves in the execution's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        found, self._current = save_best_in(best_file(folder), callbacks)
        return found

    def end_execution(self) -> None:
        """Keep the weights, unless an execution before has better ones."""
        current, self._current = self._current, None
        if current is None or not Path(current.filepath).exists():
            return  # a hypermodel's own `fit` need not save
        best = self._best
        if best is None or current.objective.better_than(current.best_value, best.best_value):
            self._best = current
            atomic_link(self._file, Path(current.filepath))


def best_file(folder: Path) -> Path:
    """Return the file with the best weights of an execution.

    Args:
        folder: That of its checkpoints.
    """
    return folder / "best.weights.h5"


_EVERY_SECONDS = 300.0
_KEEP = 2  # of which one may be damaged


class TrialCheckpoint(Checkpoint):
    """Saves one execution of a trial as it proceeds, and continues one that was interrupted.

    The trial that Hyperband promotes another one to begins where that one ended, with its history
    and its best weights: it ends as if it had been trained for all epochs.

    After a signal it saves at the end of the step, and raises `Interrupted`.

    Args:
        folder: That of `checkpoint_folder`.
        held: What `hold_signals` yielded.
        promoted: The `checkpoint_folder` of the trial that was promoted to this one; `None` for
            a trial that begins with its first epoch.
    """

    def __init__(self, folder: Path, *, held: Received, promoted: Path | None = None) -> None:
        super().__init__(
            folder, every_seconds=_EVERY_SECONDS, keep=_KEEP, preemption=False, verbose=0
        )
        self.options = dataclasses.replace(
            self.options,
            held=held,
            start_from=promoted,
            any_rate=promoted is not None,  # a schedule may depend on the trial's epochs
            warns=False,  # nobody asked for checkpoints, and most trials are never resumed
        )

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Restore the execution, or the one that was promoted; without either it begins anew.

        Checkpoints may be damaged, or the user's model may have changed meanwhile.
        """
        problem = None
        while True:
            try:
                self._take_best_weights()
                super().fit_begins(callbacks)
                break
            except UserError as error:
                if full_disk_error(error) is not None:
                    raise
                if checkpoint_files(self.options.path):
                    shutil.rmtree(self.options.path)
                elif self.options.start_from is not None:
                    self.options = dataclasses.replace(self.options, start_from=None)
                else:
                    raise
                problem = str(error).rpartition(": ")[0]  # without what a user is to do
        if problem and self._fit is not None and self._fit.resumed_from is None:
            self._announce(f"Trained from the first epoch: {problem}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Keep a checkpoint for the next promotion where nothing was left to train."""
        super().on_train_end(logs)
        promoted = self.options.start_from
        if promoted is not None and not checkpoint_files(self.options.path):
            for one in checkpoint_files(promoted):
                atomic_link(self.options.path / one.path.name, one.path)

    def _take_best_weights(self) -> None:
        """Copy those of the trial that was promoted: this one may not find better ones."""
        if checkpoint_files(self.options.path):
            return  # with this one's
        own, promoted = best_file(self.options.path), self.options.start_from
        own.unlink(missing_ok=True)
        if promoted is None:
            return
        if not checkpoint_files(promoted) or not best_file(promoted).exists():
            raise UserError(f"{promoted} has no checkpoint: train from the first epoch")
        own.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(own) as part:  # no link: Keras writes into the file that is there
            shutil.copyfile(best_file(promoted), part)


def checkpoint_folder(trial: Path, execution: int) -> Path:
    """Return the folder of an execution's checkpoints.

    Args:
        trial: The trial's folder.
        execution: From 0.
    """
    return trial / "checkpoints" / f"execution-{execution}"


def is_resumed(trial: Path, execution: int) -> bool:
    """Whether an execution of a trial continues from a checkpoint of its own."""
    return bool(checkpoint_files(checkpoint_folder(trial, execution)))


# A patience that is never reached, for a time budget without a target.
_NEVER = sys.maxsize


def stop_of_trial(
    objective: str, target: float | None, patience: int, *, time_budget: float | None
) -> StopAtAccuracy | None:
    """Make what ends a trial before its last epoch; `None` if nothing does.

    Args:
        objective: Name of the search's objective.
        target: Accuracy that ends the trial; `None` for none.
        patience: Epochs in a row that have to beat it.
        time_budget: Seconds after which the trial ends; `None` for none.
    """
    if target is None and time_budget is None:
        return None
    return StopAtAccuracy(
        {objective: 0.0} if target is None else target,
        _NEVER if target is None else patience,
        time_budget=time_budget,
        verbose=0,
    )


class FailOnNonFinite(ResumableCallback):
    """Fails the trial at the batch whose loss is NaN or infinite, or after such a validation.

    Args:
        stop: The callback that looks at the loss; it has to come earlier in the list.
    """

    def __init__(self, stop: StopAtNonFinite) -> None:
        super().__init__()
        self.stop = stop

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Check the loss."""
        if self.stop.found is not None:
            raise keras_tuner.errors.FailedTrialError(str(self.stop.found))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Check the validation loss."""
        value = (logs or {}).get("val_loss")
        if value is not None and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(
                f"val_loss was {value:g} after epoch {epoch + 1}"
            )


class RequireMetric(ResumableCallback):
    """Ends the search if a validation does not report the metric that trials are compared by.

    Args:
        name: Of the metric in `logs`. One that only a callback can add is not checked.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Check the metric."""
        names = list(logs or {})
        validated = any(name.startswith("val_") for name in names)
        if validated and self.name in OF_VALIDATION and self.name not in names:
            raise SearchError(missing_metric(self.name, names))


class LogSecondsToTarget(ResumableCallback):
    """Adds the seconds to the target to `logs` once it is reached.

    Args:
        stop: The callback that measures them; it has to come earlier in the list.
    """

    def __init__(self, stop: StopAtAccuracy) -> None:
        super().__init__()
        self.stop = stop

    def on_epoch_end(self, _: int, logs: dict[str, Any] | None = None) -> None:
        """Add the seconds if the target is reached."""
        if self.stop.reached and logs is not None:
            logs["seconds_to_target"] = self.stop.met_seconds


class ReportProgress(ResumableCallback):
    """Reports steps and epochs of one execution of a trial.

    Args:
        progress: Shows them.
        objective: Name of the objective, which is shown at the end of an epoch.
        execution: Number of the execution, from 0.
        executions: Executions of the trial.
    """

    def __init__(
        self, progress: Progress, *, objective: str, execution: int, executions: int
    ) -> None:
        super().__init__()
        self.progress = progress
        self.objective = objective
        self.execution = execution
        self.executions = executions
        self._first: int | None = None
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the epoch; a trial that continues another begins later than at the first."""
        super().on_epoch_begin(epoch, logs)
        self._first = epoch if self._first is None else self._first
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Move the bar."""
        steps = self.params.get("steps")
        if steps:
            part = min((batch + 1) / steps, 1.0)
            self.progress.update(self._done(self._epoch + part), self._what)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Report the epoch with its value of the objective."""
        values = logs or {}
        names = (self.objective, "val_accuracy", "val_loss", "loss")
        name = next((name for name in names if name in values), None)
        value = "" if name is None else f": {name} {float(values[name]):.4g}"
        self.progress.end_epoch(self._done(epoch + 1), f"{self._what}{value}")

    def _done(self, epochs: float) -> float:
        first = self._first or 0
        part = (epochs - first) / max(1, self.params["epochs"] - first)
        return float((self.execution + part) / self.executions)

    @property
    def _what(self) -> str:
        epoch = f"epoch {self._epoch + 1}/{self.params['epochs']}"
        if self.executions == 1:
            return epoch
        return f"execution {self.execution + 1}/{self.executions}, {epoch}"


_IDLE_SECONDS = 1.0

CallbackMaker = Callable[[str, int, Mapping[str, Any]], Sequence[keras.callbacks.Callback]]


class ReplicaTuner(HookedTuner):
    """A `keras_tuner.Tuner` that trains every trial on the replicas of one strategy.

    `search`, `get_best_models` and `results_summary` are KerasTuner's. The differences:

    * Models are created by `strategy.build`, so batch norms are synchronized.
    * Failed trials (out of memory, a NaN loss, any exception) are recorded in `failure.txt` in
      their folder and skipped.
    * Trials that Hyperband promotes resume where they stopped, and end as if they had been trained
      for all epochs: their result is that of the best epoch of all.
    * A trial that was killed or interrupted continues from its newest checkpoint.

    A search whose trials do not report the oracle's objective ends at the first of them, and so
    does one whose disk is full.

    Args:
        oracle: The result of `make_oracle`.
        hypermodel: A `keras_tuner.HyperModel`, or a function from `HyperParameters` to a compiled
            model.
        strategy: The strategy that trains the trials.
        seed: Seed of the weights and dropout; every further execution of a trial adds one.
        target_accuracy: With the objective `"seconds_to_target"`: a trial stops when its
            `val_accuracy` beats this in `patience` epochs in a row.
        patience: See `target_accuracy`.
        time_budget: Seconds after which a trial is stopped at the end of an epoch.
        make_callbacks: A function from a trial's name, the number of the execution (from 0) and the
            hyperparameter values to additional callbacks. With `get_state` and `set_state` their
            state is restored when a trial continues.
        announce: Called with a line when a trial starts and ends, and after every epoch; `None` for
            no lines.
        console: A terminal, for progress bars in place of the lines after every epoch.
        **kwargs: `directory`, `project_name`, `executions_per_trial`, … of `keras_tuner.Tuner`.

    Example:
        ```python
        oracle = kdist.study.make_oracle(
            "hyperband",
            objective=keras_tuner.Objective("val_accuracy", "max"),
            max_trials=None,
            max_epochs=9,
        )
        strategy = kdist.MirroredStrategy(replicas=2)
        tuner = kdist.study.ReplicaTuner(oracle, build, strategy=strategy, directory="runs")
        tuner.search(x, y, validation_data=(x_val, y_val), batch_size=64)
        best = tuner.get_best_models()[0]
        ```
    """

    def __init__(
        self,
        oracle: keras_tuner.Oracle,
        hypermodel: Any,
        *,
        strategy: MirroredStrategy,
        seed: int = 0,
        target_accuracy: float | None = None,
        patience: int = 1,
        time_budget: float | None = None,
        make_callbacks: CallbackMaker | None = None,
        announce: Callable[[str], None] | None = None,
        console: Console | None = None,
        **kwargs: Any,
    ) -> None:
        check_time_budget(oracle.objective.name, time_budget)
        self.distribution_strategy = strategy  # the constructor below builds models already
        self.seed = seed
        self.target_accuracy = target_accuracy
        self.patience = patience
        self.time_budget = time_budget
        self._make_callbacks = make_callbacks
        self._announce = announce or (lambda _: None)
        self._console = console
        self._progress = Progress(self._announce)
        self._execution = 0
        self._idle = False
        super().__init__(
            oracle=oracle, hypermodel=hypermodel, distribution_strategy=strategy, **kwargs
        )
        # The search may have been started under another tuner id, by a chief.
        if self.oracle is oracle and not oracle.trials and oracle_file(oracle).exists():
            oracle.reload()

    def save(self) -> None:
        """Write the state of the tuner and, unless a chief has it, of the oracle."""
        if not self.is_worker:
            self.oracle.save()
        atomic_write(self.tuner_file, "{}")

    def declare_space(self) -> None:
        """Declare the search space to the oracle."""
        if getattr(self.hypermodel, "declares_all", False):  # so that no model need be built
            hp = self.oracle.get_space()
            self.hypermodel.declare_hyperparameters(hp)
            self.oracle.update_space(hp)
            return
        with self.distribution_strategy.scope():
            super().declare_space()

    def make_model(self, hp: Any) -> keras.Model:
        """Build and compile a model on the strategy's replicas."""
        keras.utils.set_random_seed(self.seed + self._execution)
        model = self.distribution_strategy.build(lambda: self.hypermodel.build(hp))
        self.use_tuners_compile_arguments(model)
        return model

    def load_model(self, trial: Any) -> keras.Model:
        """Return a trial's model with the weights of its best epoch."""
        model = self.prepare_model(trial.hyperparameters)
        with self.distribution_strategy.scope():
            if not model.built:
                config = self.build_config_file(trial.trial_id).read_text(encoding="utf-8")
                model.build_from_config(json.loads(config))
            if not model.optimizer.built:  # otherwise Keras skips its variables
                model.optimizer.build(model.trainable_variables)
            model.load_weights(self.checkpoint_file(trial.trial_id))
        return model

    def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        """Train the trial's model `executions_per_trial` times.

        Raises:
            keras_tuner.errors.FailedTrialError: The trial failed, for any reason but a full disk.
        """
        values = trial.hyperparameters.values
        if "tuner/epochs" in values:
            # The checkpoint of a trial that was promoted says where this one begins.
            kwargs |= {"epochs": values["tuner/epochs"], "initial_epoch": 0}
        self._execution = 0
        self._best_weights = BestWeights(self.checkpoint_file(trial.trial_id))
        failure = Path(self.get_trial_dir(trial.trial_id)) / "failure.txt"
        failure.unlink(missing_ok=True)
        try:
            fail_if_it_ended_a_process(trial.trial_id)
            # A search makes hundreds of models.
            with end_at_full_disk(self.project_dir), temporary_custom_gradients():
                results = super().run_trial(trial, *args, **kwargs)
            fail_unless_finite(results, self.oracle.objective.name)
            return results
        except keras_tuner.errors.FatalError:
            raise
        except (Exception, SystemExit) as error:  # `sys.exit()` of a user's code
            reason = reason_of(error)
            atomic_write(failure, f"{reason}\n\n{traceback.format_exc()}")
            raise keras_tuner.errors.FailedTrialError(reason) from None

    def run_and_set_status(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Run a trial, report its results to the oracle, and set its status."""
        # KerasTuner prints a traceback for every failed trial, and treats a lost chief as one.
        try:
            self.run_and_report(trial, *args, **kwargs)
            trial.status = "COMPLETED"
        except keras_tuner.errors.FailedTrialError as error:
            trial.status = "FAILED"
            trial.message = str(error)

    def search(self, *args: Any, **kwargs: Any) -> None:
        """Run the remaining trials, as `keras_tuner.Tuner.search` does, and show the progress.

        A full disk raises a `UserError`; the trial that it hit continues in the next search.
        """
        known: dict[str, Any] = {}
        if not self.is_worker:
            known = {"total": total_trials(self.oracle), "ended": len(self.oracle.end_order)}
        progress = Progress(self._announce, console=self._console, **known)
        with end_at_full_disk(self.project_dir), progress as self._progress:
            super().search(*args, **kwargs)

    def train_once(
        self, trial: Any, *args: Any, callbacks: Sequence[Any] = (), **kwargs: Any
    ) -> Any:
        """Build and fit the model of a trial: one of its executions."""
        hp = trial.hyperparameters
        folder = Path(self.get_trial_dir(trial.trial_id))
        total = PrintTotalTime(verbose=0)
        target = self.target_accuracy
        stop = stop_of_trial(
            self.oracle.objective.name, target, self.patience, time_budget=self.time_budget
        )
        metric = self.oracle.objective.name if target is None else "val_accuracy"
        finite = StopAtNonFinite(verbose=0)
        own: list[Any] = [finite, FailOnNonFinite(finite), RequireMetric(metric)]
        own += [PrintThroughput(verbose=0), total, *([] if stop is None else [stop])]
        own.append(
            ReportProgress(
                self._progress,
                objective=self.oracle.objective.name,
                execution=self._execution,
                executions=self.executions_per_trial,
            )
        )
        if stop is not None and target is not None:
            own.append(LogSecondsToTarget(stop))
        more: Sequence[Any] = ()
        if self._make_callbacks is not None:
            more = self._make_callbacks(trial.trial_id, self._execution, hp.values)
        place, promoted = checkpoint_folder(folder, self._execution), None
        if "tuner/trial_id" in hp.values:
            parent = Path(self.get_trial_dir(hp.values["tuner/trial_id"]))
            promoted = checkpoint_folder(parent, self._execution)
        callbacks = self._best_weights.begin_execution(place, callbacks)
        with hold_signals() as received, ended(more):  # also of a trial that fails
            # KerasTuner's own callbacks come after the others, as it saves the weights with them.
            checkpoint = TrialCheckpoint(place, held=received, promoted=promoted)
            history = super().train_once(
                trial, *args, callbacks=[*own, *more, *callbacks, checkpoint], **kwargs
            )
            self._best_weights.end_execution()
        received.check()  # it came in the last step
        self._execution += 1
        if not isinstance(history, keras.callbacks.History):
            return history  # a hypermodel's own `fit` may return numbers
        metrics = {"seconds": total.seconds, "epochs": history.epoch[-1] + 1.0}
        if stop is not None and target is not None:
            return {**metrics, **target_metrics(stop, target, time_budget=self.time_budget)}
        objective = Objective(self.oracle.objective.name, self.oracle.objective.direction)
        try:
            return {**best_epoch(history.history, objective), **metrics}
        except UserError as error:
            raise SearchError(str(error)) from None

    def pre_create_trial(self) -> None:
        """Wait a second if the oracle had no trial; KerasTuner would ask again immediately."""
        if self._idle:
            time.sleep(_IDLE_SECONDS)
        self._idle = True

    def on_trial_begin(self, trial: Any) -> None:
        """Announce the trial's hyperparameters."""
        self._idle = False
        marker = self._running_marker()
        if marker is not None:
            atomic_write(marker, trial.trial_id)
        names = [hyperparameter.name for hyperparameter in trial.hyperparameters.space]
        values = in_order(trial.hyperparameters.values, names)
        self._progress.begin(f"trial {trial.trial_id}", describe(values))

    def on_trial_end(self, trial: Any) -> None:
        """Announce the trial's result."""
        super().on_trial_end(trial)
        marker = self._running_marker()
        if marker is not None:
            marker.unlink(missing_ok=True)
        known = self.oracle.get_trial(trial.trial_id)
        name = self.oracle.objective.name
        outcome = f"{name} {known.score:.4g}" if known.status == "COMPLETED" else "failed"
        if trial.message:
            outcome += f": {trial.message}"
        self._progress.end(outcome)

    def _running_marker(self) -> Path | None:
        return running_marker(Path(self.project_dir), self.tuner_id) if self.is_worker else None
