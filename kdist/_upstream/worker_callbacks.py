"""Callbacks of several workers: only the chief writes, and all workers stop together."""

from collections.abc import Callable
from typing import Any

import keras
from keras.callbacks import CallbackList

from ..errors import UserError
from .hooks import hooks_of
from .patching import replaces
from .row_counts import batches_read
from .worker_steps import reads_same_data

_BATCHES_READ = "the number of batches read in it, for training and validation,"
_CHIEF_ONLY = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)


def runs_on_chief_only(callback: Any) -> bool:
    """Whether a callback only writes or prints, so that the chief alone has to run it.

    The attribute `on_chief_only` of a user's callback decides, if the callback has it.
    """
    return bool(getattr(callback, "on_chief_only", _writes(callback)))


def _writes(callback: Any) -> bool:
    """Whether a callback is a writing or printing callback of Keras or W&B, or a subclass."""
    return isinstance(callback, _CHIEF_ONLY) or "wandb" in _packages(callback)


def _packages(callback: Any) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(callback).__mro__}


def _saves_model(callback: Any) -> bool:
    """Whether a callback saves the model: all workers have to read divided state together."""
    return isinstance(callback, keras.callbacks.ModelCheckpoint)


def _is_for_one_worker(callback: Any) -> bool:
    """Whether a callback restores its saved state; only a single worker can restore it."""
    is_keras = isinstance(callback, keras.callbacks.BackupAndRestore)
    return bool(getattr(callback, "for_one_worker", is_keras))


def _stops_in_epoch(callback: Any) -> bool:
    """Whether a callback may stop training after a batch.

    The workers then exchange the decision after every batch, so that training stops at the same
    batch as on a single worker.
    """
    kind = type(callback)
    is_users = kind.__module__.partition(".")[0] not in ("keras", "kdist")
    is_users |= isinstance(callback, keras.callbacks.LambdaCallback)
    handles_batches = any(
        name in vars(callback) or getattr(kind, name) is not getattr(keras.callbacks.Callback, name)
        for name in ("on_batch_end", "on_train_batch_end")
    )
    stops = is_users and handles_batches and not _writes(callback)
    stops |= isinstance(callback, keras.callbacks.TerminateOnNaN)
    return bool(getattr(callback, "stops_in_epoch", stops))


class _WorkerCallbackList(CallbackList):
    """A list of callbacks that counts steps for the strategy, and stops with all workers."""

    # `_make_list` changes the class of a list after its construction: no `__init__` sets these.
    exchanges_after_batches = stops_after_epoch = False
    batches_before = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Decide together whether to exchange after every batch: the callbacks may differ."""
        super().on_train_begin(logs)
        is_endless = (self.params or {}).get("steps") is None
        asks = is_endless or any(map(_stops_in_epoch, self.callbacks))
        self.exchanges_after_batches = any(self._hooks.exchange("the start of training", asks))
        self.batches_before = batches_read()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin at the chief's learning rate: a callback may have set the rate."""
        super().on_epoch_begin(epoch, logs)
        optimizer = self.model.optimizer
        own = _learning_rate(optimizer)
        chiefs = self._hooks.exchange(f"the start of epoch {epoch + 1}", own)[0]
        _set_learning_rate(optimizer, own, chiefs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop after this batch if workers exchange decisions now, otherwise after the epoch."""
        self._hooks.step_watch.step_ended()
        super().on_train_batch_end(batch, logs)
        model = self.model
        if self.exchanges_after_batches:
            everyone = self._hooks.exchange("the end of a batch", bool(model.stop_training))
            model.stop_training = any(everyone)
        elif model.stop_training:
            model.stop_training, self.stops_after_epoch = False, True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop on all workers or on none, and continue at the chief's learning rate."""
        model = self.model
        if self.stops_after_epoch:
            model.stop_training, self.stops_after_epoch = True, False
        super().on_epoch_end(epoch, logs)
        rate = _learning_rate(model.optimizer)
        event, batches = f"the end of epoch {epoch + 1}", self._batches_of_epoch()
        everyone = self._hooks.exchange(event, [bool(model.stop_training), rate, batches])
        read = [batches for _, _, batches in everyone]
        if None not in read and len({*read}) > 1:
            self._hooks.compare_workers(event, {_BATCHES_READ: batches})
        model.stop_training = any(stops for stops, _, _ in everyone)
        _set_learning_rate(model.optimizer, rate, everyone[0][1])

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Record the start of a step after all callbacks have been called."""
        super().on_train_batch_begin(batch, logs)
        self._hooks.step_watch.step_began()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_test_batch_begin(batch, logs)
        self._hooks.step_watch.step_began()

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_predict_batch_begin(batch, logs)
        self._hooks.step_watch.step_began()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record the end of a step before any callback is called."""
        self._hooks.step_watch.step_ended()
        super().on_test_batch_end(batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._hooks.step_watch.step_ended()
        super().on_predict_batch_end(batch, logs)

    @property
    def _hooks(self) -> Any:
        return self.model.distribute_strategy

    def _batches_of_epoch(self) -> int | None:
        """Return the number of batches read, validation included; `None` for different data."""
        if not reads_same_data():
            return None
        before, self.batches_before = self.batches_before, batches_read()
        return self.batches_before - before


@replaces(
    CallbackList,
    "__init__",
    why="With several workers, all workers write to the same files; a worker that stops alone"
    " leaves the other workers waiting, and learning rates that callbacks set may differ.",
    test="test_every_worker_runs_every_callback",
)
def _make_list(
    original: Callable[..., None],
    callbacks: Any,
    given: Any = None,
    add_history: bool = False,
    add_progbar: bool = False,
    model: Any = None,
    **params: Any,
) -> None:
    """Leave callbacks that write or print to the chief, and let all workers stop together."""
    original(callbacks, given, add_history, add_progbar, model, **params)
    hooks = hooks_of(model) if isinstance(model, keras.Model) else None
    if hooks is None or hooks.workers == 1:
        return
    for callback in callbacks.callbacks:
        if _is_for_one_worker(callback):
            raise UserError(
                f"{type(callback).__name__} works with one worker only, and this training has"
                f" {hooks.workers} workers: pass kdist.callbacks.Checkpoint, which works with any"
                " number of workers"
            )
    all_workers_save = model.distribute_strategy.extended.divides_state
    for callback in callbacks.callbacks if all_workers_save else ():
        if _saves_model(callback) and "wandb" in _packages(callback):
            raise UserError(
                f"{type(callback).__name__} saves on the chief alone, but the chief holds only a"
                " part of each variable: save with keras.callbacks.ModelCheckpoint, or remove"
                " shard_optimizer and shard_weights"
            )
    if not hooks.is_chief:
        callbacks.callbacks = [
            callback
            for callback in callbacks.callbacks
            if not runs_on_chief_only(callback) or (all_workers_save and _saves_model(callback))
        ]
        for callback in filter(_saves_model, callbacks.callbacks):
            callback.verbose = 0
        callbacks._progbar = None
    callbacks.__class__ = _WorkerCallbackList


def _set_learning_rate(optimizer: Any, own: float | None, chiefs: float | None) -> None:
    if own is not None and chiefs is not None and own != chiefs:
        optimizer.learning_rate = chiefs


def _learning_rate(optimizer: Any) -> float | None:
    """Return the learning rate if callbacks can set it, as a variable; otherwise `None`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    rate = getattr(optimizer, "_learning_rate", None)
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else None


PATCHES = (_make_list,)
