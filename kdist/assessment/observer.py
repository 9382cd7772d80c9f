"""`Observer`: a callback that records what a training does, and ends it once that is enough."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from .._upstream import steps_taken
from .facts import Epoch, Facts, Images
from .planned_rates import rate_of
from .row_counts import RowCounts
from .targets import Targets, targets_of

# After these many steps a rate changes slowly.
_EVERY_STEP, _THEN_EVERY = 1000, 16


class Observer(keras.callbacks.Callback):
    """Records what all trainings of a program do, one after the other.

    Training ends after the epoch in which the targets are met, or as soon as the time is over.

    Args:
        path: File for the facts, which is written after every epoch.
        generation: Of the assessment, whose targets depend on the images that are loaded.
        images: Returns what the program has loaded.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        is_decided: Whether nothing more has to be known.
    """

    def __init__(
        self,
        path: Path,
        *,
        generation: int,
        images: Callable[[], Images | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self._path, self._generation, self._images, self._clock = path, generation, images, clock
        self._began: float | None = None
        self._counts = RowCounts()
        self._rates: list[tuple[int, float]] = []
        self._epochs: list[Epoch] = []
        self._planned_peak: float | None = None
        self._validated = self._looks = self._fits = 0
        self._step = self._steps_before = 0
        self._late: float | None = None
        self._is_cut = self.is_decided = False

    def begin(self, model: keras.Model, planned_peak: float | None) -> None:
        """Watch a model that is about to be trained.

        Args:
            model: The model.
            planned_peak: The largest rate of its schedule; `None` if it has none.
        """
        self.watch(model)
        self._fits += 1
        # A model of its own, or one that is compiled again, counts its steps from 0.
        self._steps_before = self._step - steps_taken(model.optimizer)
        peaks = [p for p in (self._planned_peak, planned_peak) if p is not None]
        self._planned_peak = max(peaks, default=None)
        if self._began is None:
            self._began = self._clock()

    def watch(self, model: keras.Model) -> None:
        """Look at the rows of a model's steps."""
        if model.distribute_strategy.num_replicas_in_sync == 1:
            model.jit_compile = False  # compiled as a whole, a step could not be looked into
        self._counts.watch(model.distribute_strategy)

    def facts(self, error: str | None = None) -> Facts:
        """Return what is known so far.

        Args:
            error: Why the program failed; `None` if it did not.
        """
        return Facts(
            images=self._images(),
            largest_step=self._counts.largest,
            fits=self._fits,
            is_cut=self._is_cut,
            rates=self._rates,
            planned_peak=self._planned_peak,
            epochs=self._epochs,
            late=self._late,
            error=error,
        )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the rows of the epoch from here."""
        super().on_epoch_begin(epoch, logs)
        self._counts.begin_training()
        self._validated = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Look at the learning rate, and at the clock."""
        super().on_train_batch_begin(batch, logs)
        if self._seconds() > self._targets().seconds:
            self._end_late()
        step = self._steps_before + steps_taken(self.model.optimizer)
        self._looks += 1
        if step < _EVERY_STEP or self._looks % _THEN_EVERY == 0:
            rate = rate_of(self.model.optimizer)
            self._rates += [] if rate is None else [(step, rate)]

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Count the rows of the validation from here."""
        super().on_test_begin(logs)
        self._counts.begin_test()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Keep their number."""
        super().on_test_end(logs)
        self._validated = self._counts.tested

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Record the epoch, and end the training if nothing more has to be known."""
        super().on_epoch_end(epoch, logs)
        if self._late is not None:
            return  # a part of an epoch
        self._step = self._steps_before + steps_taken(self.model.optimizer)
        values = {name: float(value) for name, value in (logs or {}).items() if _is_number(value)}
        self._epochs.append(
            Epoch(
                seconds=self._seconds(),
                rows=list(self._counts.trained),
                repeated=self._counts.repeated(),
                values=values,
                validated=self._validated,
            )
        )
        if _is_decided(self.facts(), self._targets()):
            self.is_decided = self.model.stop_training = True
            self._is_cut = epoch + 1 < (self.params or {}).get("epochs", 0)
        self.facts().write(self._path)

    def _seconds(self) -> float:
        """Since the begin of the first fit."""
        return 0.0 if self._began is None else self._clock() - self._began

    def _targets(self) -> Targets:
        images = self._images()
        return targets_of(self._generation, images.name if images else "")

    def _end_late(self) -> None:
        if self._late is None:
            self._late = self._seconds()
            self.is_decided = self._is_cut = True
            self.facts().write(self._path)
        self.model.stop_training = True


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_decided(facts: Facts, targets: Targets) -> bool:
    """Whether the targets are met, or cannot be met in time any more."""
    return targets.met(facts.epochs) is not None or facts.epochs[-1].seconds > targets.seconds
