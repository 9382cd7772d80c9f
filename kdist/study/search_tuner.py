"""`ReplicaTuner`: a KerasTuner tuner that trains trials on replicas; scores: `search_scores.py`."""

import contextlib
import json
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_tuner
from rich.console import Console

from .._upstream.internals import temporary_custom_gradients
from .._upstream.keras_tuner import HookedTuner, oracle_file
from ..callbacks import PrintThroughput, PrintTotalTime, StopAtNonFinite
from ..callbacks.resumable import ResumableCallback
from ..callbacks.stop_at_accuracy import StopAtAccuracy
from ..files import atomic_write, full_disk_error
from ..signals import hold_signals
from ..strategies.mirrored_strategy import MirroredStrategy
from ..tracking.tracker import ended
from ..training.user_model.functions import reason_of
from .console import Progress
from .search_checkpoints import BestWeights, TrialCheckpoint, checkpoint_folder
from .search_oracles import total_trials
from .search_processes import ENDED_BY, running_marker
from .search_scores import (
    SearchError,
    best_epoch,
    fail_unless_finite,
    missing_metric,
    target_metrics,
)
from .search_settings import check_time_budget
from .search_trials import describe, in_order

_POLL_SECONDS = 1.0

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
        self._waits = False
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

    def search(self, *args: Any, **kwargs: Any) -> None:
        """Run the remaining trials, as `keras_tuner.Tuner.search` does, and show the progress.

        A full disk raises a `UserError`; the trial that it hit continues in the next search.
        """
        known: dict[str, Any] = {}
        if not self.is_worker:
            known = {"total": total_trials(self.oracle), "ended": len(self.oracle.end_order)}
        progress = Progress(self._announce, console=self._console, **known)
        with _end_at_full_disk(self.project_dir), progress as self._progress:
            super().search(*args, **kwargs)

    def pre_create_trial(self) -> None:
        """Wait a second if the oracle had no trial; KerasTuner would ask again immediately."""
        if self._waits:
            time.sleep(_POLL_SECONDS)
        self._waits = True

    def on_trial_begin(self, trial: Any) -> None:
        """Announce the trial's hyperparameters."""
        self._waits = False
        marker = self._running_marker()
        if marker is not None:
            atomic_write(marker, trial.trial_id)
        names = [hyperparameter.name for hyperparameter in trial.hyperparameters.space]
        values = in_order(trial.hyperparameters.values, names)
        self._progress.begin(f"trial {trial.trial_id}", describe(values))

    def run_and_set_status(self, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Run a trial, report its results to the oracle, and set its status."""
        # KerasTuner prints a traceback for every failed trial, and treats a lost chief as one.
        try:
            self.run_and_report(trial, *args, **kwargs)
            trial.status = "COMPLETED"
        except keras_tuner.errors.FailedTrialError as error:
            trial.status = "FAILED"
            trial.message = str(error)

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
            # The previous process of this worker died during the trial that it names.
            died, _, reason = os.environ.get(ENDED_BY, "").partition("=")
            if died == trial.trial_id:
                raise keras_tuner.errors.FailedTrialError(reason)
            # A search makes hundreds of models.
            with _end_at_full_disk(self.project_dir), temporary_custom_gradients():
                results = super().run_trial(trial, *args, **kwargs)
            fail_unless_finite(results, self.oracle.objective.name)
            return results
        except keras_tuner.errors.FatalError:
            raise
        except (Exception, SystemExit) as error:  # `sys.exit()` of a user's code
            reason = reason_of(error, plain=(keras_tuner.errors.FailedTrialError,))
            atomic_write(failure, f"{reason}\n\n{traceback.format_exc()}")
            raise keras_tuner.errors.FailedTrialError(reason) from None

    def train_once(
        self, trial: Any, *args: Any, callbacks: Sequence[Any] = (), **kwargs: Any
    ) -> Any:
        """Build and fit the model of a trial: one of its executions."""
        hp = trial.hyperparameters
        folder = Path(self.get_trial_dir(trial.trial_id))
        target, objective = self.target_accuracy, self.oracle.objective
        finite, total, stop = StopAtNonFinite(verbose=0), PrintTotalTime(verbose=0), None
        own: list[Any] = [finite]
        own.append(CheckTrial(finite, objective.name if target is None else "val_accuracy"))
        own += [PrintThroughput(verbose=0), total]
        if target is not None or self.time_budget is not None:
            stop = StopAtAccuracy(target, self.patience, time_budget=self.time_budget, verbose=0)
            own.append(stop)
        own.append(
            ReportProgress(
                self._progress,
                objective=objective.name,
                execution=self._execution,
                executions=self.executions_per_trial,
                target=None if target is None else stop,
            )
        )
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
        return {**best_epoch(history.history, objective), **metrics}

    def make_model(self, hp: Any) -> keras.Model:
        """Build and compile a model on the strategy's replicas."""
        keras.utils.set_random_seed(self.seed + self._execution)
        model = self.distribution_strategy.build(lambda: self.hypermodel.build(hp))
        self.use_tuners_compile_arguments(model)
        return model

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


@contextlib.contextmanager
def _end_at_full_disk(folder: str) -> Iterator[None]:
    """End the search if the block finds its disk full, as every further trial would fail.

    Args:
        folder: The one of the trials, for errors without a file name.
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


class CheckTrial(ResumableCallback):
    """Fails a trial that diverged, and ends a search without the metric that trials compare by.

    Args:
        finite: The callback that looks at the loss; it has to come earlier in the list.
        metric: Name of the metric in `logs`. One that only a callback can add is not checked.
    """

    def __init__(self, finite: StopAtNonFinite, metric: str) -> None:
        super().__init__()
        self.finite = finite
        self.metric = metric

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Fail at the batch whose loss is NaN or infinite."""
        if self.finite.found is not None:
            raise keras_tuner.errors.FailedTrialError(str(self.finite.found))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Check the loss of a validation, and that it reports the metric."""
        logs = logs or {}
        value = logs.get("val_loss")
        if value is not None and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(
                f"val_loss was {value:g} after epoch {epoch + 1}"
            )
        validated = any(name.startswith("val_") for name in logs)
        if validated and self.metric in ("val_accuracy", "val_loss") and self.metric not in logs:
            raise SearchError(missing_metric(self.metric, logs))


class ReportProgress(ResumableCallback):
    """Reports steps and epochs of one execution of a trial.

    Args:
        progress: Shows them.
        objective: Name of the objective, which is shown at the end of an epoch.
        execution: Number of the execution, from 0.
        executions: Executions of the trial.
        target: Measures the seconds to the target, which are added to `logs` once it is reached; it
            has to come earlier in the list.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        objective: str,
        execution: int,
        executions: int,
        target: StopAtAccuracy | None = None,
    ) -> None:
        super().__init__()
        self.progress = progress
        self.objective = objective
        self.execution = execution
        self.executions = executions
        self.target = target
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
        values = {} if logs is None else logs
        names = (self.objective, "val_accuracy", "val_loss", "loss")
        name = next((name for name in names if name in values), None)
        value = "" if name is None else f": {name} {float(values[name]):.4g}"
        self.progress.end_epoch(self._done(epoch + 1), f"{self._what}{value}")
        if self.target is not None and self.target.reached:
            values["seconds_to_target"] = self.target.met_seconds

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
