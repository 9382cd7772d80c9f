"""`FitCheckpoints`: the checkpoints of a fit, from its beginning to its end.

`callbacks/checkpoint.py` calls the methods. `saved_training.py` copies and restores a training, and
`variable_values.py` its variables. `checkpoint_folder.py` writes the files, and
`worker_checkpoints.py` shares them among the workers.
"""

from collections.abc import Callable, Mapping, Sequence
from signal import Signals
from typing import Any

import keras
import numpy as np

from .._upstream.fit import build_for_fit, pass_over_data, start_fit_at
from .._upstream.keras_callback_states import defer_average, finish_average
from ..errors import NonFiniteWeightsError
from ..signals import PreemptionSignals
from ..workers.worker_exchange import Workers
from .callback_states import CallbackStates
from .checkpoint_options import CheckpointOptions
from .run_description import describe_run
from .save_times import SaveTimes
from .saved_training import EpochState, SavedTraining, copy_epoch_state, copy_training
from .variable_values import (
    copy_values,
    is_of_optimizer,
    state_variables,
    warn_of_unsaved_state,
)
from .worker_checkpoints import SharedStore, SharedWriter, StepExchange


class WeightsGuard:
    """Finds non-finite weights, which stop a training and are never saved."""

    def __init__(self, model: keras.Model, workers: Workers) -> None:
        self._model = model
        self._workers = workers
        self._allowed: set[str] = set()

    def allow_nonfinite_masks(self) -> None:
        """Allow non-finite values that untrainable variables have now, as masks do."""
        variables = state_variables(self._model)
        self._allowed = {
            name
            for name, array in copy_values(variables).items()
            if not variables[name].trainable and not _is_finite(array)
        }

    def check(self, arrays: Mapping[str, np.ndarray], *, epoch: int, step: int) -> None:
        """Raise `NonFiniteWeightsError` if a weight or a variable of an optimizer is not finite."""
        name = self._find_nonfinite(arrays)
        if name is not None:
            raise NonFiniteWeightsError(name, epoch=epoch, step=step)

    def find_nonfinite_weight(self) -> str | None:
        """Return the name of the first non-finite variable; `None` if all variables are finite."""
        arrays = copy_values(state_variables(self._model))
        return self._workers.run_on_chief(
            "the check of the weights", lambda: self._find_nonfinite(arrays)
        )

    def _find_nonfinite(self, arrays: Mapping[str, np.ndarray]) -> str | None:
        for name, array in arrays.items():
            is_weight = name.startswith("model/") or is_of_optimizer(name)
            if is_weight and name not in self._allowed and not _is_finite(array):
                return name.split("/", 2)[2]
        return None


def _is_finite(array: np.ndarray) -> bool:
    if array.dtype.kind in "biu":
        return True
    try:
        return bool(np.isfinite(array).all())
    except TypeError:  # a type without infinities
        return True


class FitCheckpoints:
    """Resumes a fit that is about to begin, and saves checkpoints of the fit.

    The chief reads and writes the files. All workers save and stop after the same step. The model
    is compiled and its optimizer built; `callbacks` has the callbacks of the fit besides
    `Checkpoint`, and `params` their `params`. `announce` is called with a line for each problem, in
    any thread.

    Attributes:
        greeting: Line to print as training begins.

    Raises:
        UserError: The folder cannot be used, or has checkpoints of another training.
    """

    def __init__(
        self,
        model: keras.Model,
        params: dict[str, Any],
        callbacks: Sequence[keras.callbacks.Callback],
        options: CheckpointOptions,
        announce: Callable[[str], None],
    ) -> None:
        self._model = model
        self._epochs: int = params["epochs"]
        self._steps: int | None = params.get("steps")
        self._options = options
        self._announce = announce
        self._workers = Workers(model)
        self._workers.compare("the start of Checkpoint", options.shared_values())
        self._callbacks = CallbackStates(callbacks)
        self._averages = [c for c in callbacks if isinstance(c, keras.callbacks.SwapEMAWeights)]
        self._signals = options.held_signals or options.make_signals()
        self._writer = SharedWriter(self._workers)
        self._times = SaveTimes(
            every_seconds=options.every_seconds,
            every_steps=options.every_steps,
            clock=options.clock,
        )
        self._worker_steps = StepExchange(
            self._workers, self._signals, self._writer, self._times, options.clock
        )
        self._epoch = self._batch = 0
        self._logs: Any = None
        self._before_validation: EpochState | None = None
        self._reused_arrays: dict[str, np.ndarray] = {}
        self._had_nonfinite_loss = False
        self._failure: str | None = None  # of the last checkpoint
        self._guard = WeightsGuard(model, self._workers)
        self._description = describe_run(model, self._steps, options)
        self._store = SharedStore(options, self._workers, announce=announce)
        self.greeting = f"Checkpoints: {self._store.show(options.folder)}"
        try:
            self._saved = self._find_saved()
            if self._saved is not None:
                self._resume(self._saved)
            for callback in self._averages:
                defer_average(callback)
        except BaseException:
            self._store.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to train."""
        saved = self._saved
        if saved is None or saved.is_within_epoch:
            return False
        return saved.was_stopped or saved.epoch >= self._epochs

    def train_begins(self) -> None:
        """Restore state that `on_train_begin` of callbacks has reset."""
        saved = self._saved
        if saved is not None:
            # A callback may have set a learning rate, loaded weights, or changed the first epoch.
            saved.restore_variables(self._model)
            self._begin_at(saved)
            if not saved.is_within_epoch:
                self._epoch = saved.epoch
                self._callbacks.restore(saved.callbacks)
            if self.is_over:
                pass_over_data(self._model, saved.epoch)
                self._finish_averages()
        if self._workers.is_chief:
            self._callbacks.warn_of_unsaved()
            warn_of_unsaved_state(self._model)
        self._guard.allow_nonfinite_masks()
        if isinstance(self._signals, PreemptionSignals):
            self._signals.install()

    def epoch_begins(self, epoch: int) -> None:
        """Restore the state that the start of the epoch has reset, if the fit resumes within it."""
        self._epoch, self._batch, self._logs = epoch, 0, None
        self._had_nonfinite_loss = False
        saved, self._saved = self._saved, None
        if saved is not None and saved.is_within_epoch:
            self._batch, self._logs = saved.batch, saved.logs
            saved.restore_variables(self._model)
            saved.restore_epoch(self._model)
            self._callbacks.restore(saved.callbacks)
            self._model.stop_training = saved.was_stopped
        self._callbacks.copy({})  # an unsupported state is an error now, not at the first save

    def step_ends(self, steps: int, logs: Any) -> None:
        """Save if a save is due after these steps of the epoch; after a signal, save and end."""
        self._times.count_steps(steps - self._batch)
        self._batch, self._logs = steps, logs
        self._check_loss(logs)
        self._worker_steps.step_ends()
        is_last = self._steps is not None and steps >= self._steps
        is_due = not is_last and (self._worker_steps.is_due or self._times.is_due_by_steps())
        if (is_due or self._worker_steps.ending_signal) and not self._is_stopping():
            self._save_or_exit(self._copy_epoch_state(), is_stopping=False)

    def validation_begins(self) -> None:
        """Copy the state that validation resets, in case a signal ends the validation."""
        if self._options.ends_by_signal and self._batch:
            self._batch = self._steps or self._batch  # also if a callback stopped the epoch early
            self._before_validation = self._copy_epoch_state(before_validation=True)

    def validation_step_ends(self) -> None:
        """Save after a signal and end the process. The resumed run repeats the validation."""
        self._worker_steps.validation_step_ends()
        if self._worker_steps.ending_signal and self._before_validation is not None:
            self._save_or_exit(self._before_validation, is_stopping=self._is_stopping())

    def validation_ends(self) -> None:
        """Discard the copy that `validation_begins` took."""
        self._before_validation = None

    def epoch_ends(self, epoch: int) -> None:
        """Save if a save is due, and always at the end of the last epoch."""
        self._worker_steps.epoch_ends()
        self._epoch, self._batch = epoch + 1, 0
        is_stopping = self._is_stopping()
        if is_stopping or self._epoch >= self._epochs:
            # Save before the optimizer's averages replace the weights.
            self._save(None, is_stopping=is_stopping, wait=True)
            self._finish_averages()
        elif (
            self._worker_steps.ending_signal
            or self._worker_steps.is_due
            or self._times.is_due_by_steps()
        ):
            self._save_or_exit(None, is_stopping=False)

    def train_ends(self) -> None:
        """End the process after a signal that came too late to end the training.

        The sender of the signal expects the process to end: the machine may be gone before the
        script has ended. The next process finds that nothing is left to train.
        """
        if self._signals.first and self._options.held_signals is None:
            result = "saved" if self._failure is None else f"not saved: {self._failure}"
            self._announce(f"{self._signals.first.name}: training had ended; checkpoint {result}")
            self._signals.check()

    def end(self) -> None:
        """Wait for the writer, and release the folder and the signals, however the fit ended."""
        if isinstance(self._signals, PreemptionSignals):
            self._signals.uninstall()
        try:
            self._writer.wait()
        except NonFiniteWeightsError as error:  # the fit has already ended for another reason
            self._announce(str(error))
        finally:
            self._store.close()

    def _find_saved(self) -> SavedTraining | None:
        """Return the checked training to continue, without changing a value of the model."""
        found = self._store.find(self._options.resume)
        if found is None:
            return None
        saved = SavedTraining(*found)
        build_for_fit(self._model)
        saved.check(self._model, self._description["settings"])
        return saved

    def _resume(self, saved: SavedTraining) -> None:
        saved.restore_variables(self._model)
        self._callbacks.restore_before_training(saved.callbacks, epoch=saved.epoch)
        path = saved.checkpoint.path
        inexact = self._begin_at(saved)
        if self.is_over:
            self.greeting = f"{saved.ending}: nothing is left to train"
            return
        place = f"epoch {saved.epoch + 1} after step {saved.batch}"
        self.greeting = f"Resumed in {place} from {self._store.show(path)}"
        if inexact:
            self._announce(inexact)

    def _begin_at(self, saved: SavedTraining) -> str | None:
        """Start the fit at the saved position; return a line if the data are not exact."""
        epoch, batch = (self._epochs, 0) if self.is_over else (saved.epoch, saved.batch)
        return start_fit_at(self._model, epoch=epoch, batch=batch, data_ends=saved.data_ends)

    def _copy_epoch_state(self, *, before_validation: bool = False) -> EpochState:
        return copy_epoch_state(
            self._model,
            self._callbacks,
            self._logs,
            self._workers,
            before_validation=before_validation,
        )

    def _finish_averages(self) -> None:
        """After the last epoch, overwrite the weights with the averages (`defer_average`)."""
        for callback in self._averages if self._epoch >= self._epochs else ():
            finish_average(callback)

    def _check_loss(self, logs: Any) -> None:
        """End the training if a non-finite loss comes from non-finite weights.

        All workers have the same loss, and take part in the check.
        """
        # Once in an epoch: a float16 step with overflowing gradients is skipped, and harmless.
        if not self._had_nonfinite_loss and not np.all(np.isfinite(logs.get("loss", 0.0))):
            self._had_nonfinite_loss = True
            name = self._guard.find_nonfinite_weight()
            if name is not None:
                self._writer.pop_nonfinite_finding(wait=True)  # discards the writer's equal finding
                raise NonFiniteWeightsError(name, epoch=self._epoch + 1, step=self._batch)

    def _is_stopping(self) -> bool:
        """Whether a callback of any worker ends the training with this epoch."""
        return any(self._workers.exchange("a checkpoint", bool(self._model.stop_training)))

    def _save(self, epoch_state: EpochState | None, *, is_stopping: bool, wait: bool) -> None:
        began = self._options.clock()
        with self._workers.slow("saving a checkpoint"):
            self._writer.finish()
            self._write(epoch_state, is_stopping)
            if wait:
                self._writer.finish()
        self._worker_steps.is_due = False
        self._times.record_save(began=began)

    def _write(self, epoch_state: EpochState | None, is_stopping: bool) -> None:
        arrays, state = copy_training(
            self._model,
            self._callbacks,
            epoch_state,
            self._workers,
            is_stopping=is_stopping,
            into=self._reused_arrays,
        )
        if not self._workers.is_chief:
            return
        self._reused_arrays = {name: arrays[name] for name in state["variables"]}
        state |= self._description
        epoch, batch = self._epoch, self._batch
        # A checkpoint between two epochs belongs to the last step of the earlier epoch.
        at = {"epoch": epoch + 1, "step": batch} if batch else {"epoch": epoch, "step": self._steps}

        def commit() -> None:
            self._guard.check(arrays, **at)
            try:
                self._store.commit(epoch=epoch, batch=batch, arrays=arrays, state=state)
                self._failure = None
            except OSError as error:
                self._failure = str(error.strerror or error)
                if self._worker_steps.ending_signal is None:
                    self._announce(f"Checkpoint not saved, training continues: {self._failure}")

        self._writer.start(commit)

    def _save_or_exit(self, epoch_state: EpochState | None, *, is_stopping: bool) -> None:
        """Save; after a signal to any worker, wait for the file and end the process."""
        ending_signal = self._worker_steps.ending_signal
        self._save(epoch_state, is_stopping=is_stopping, wait=ending_signal is not None)
        if ending_signal is not None:
            self._signals.first = self._signals.first or Signals(ending_signal)
            place = f"epoch {self._epoch + 1} after step {self._batch}"
            result = "saved" if self._failure is None else f"not saved: {self._failure}"
            self._announce(
                f"{self._signals.first.name}: training ends in {place}; checkpoint {result}"
            )
            self._signals.check()
