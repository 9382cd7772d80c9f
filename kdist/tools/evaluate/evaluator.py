"""`Evaluator`: builds a run's model once, and evaluates it with the weights of several files."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ...checkpoint.checkpoint_file import CheckpointFile
from ...checkpoint.export import restore_weights
from ...data import Standardization, evaluation_batches
from ...errors import UserError, first_message_line
from ...strategies.mirrored_strategy import MirroredStrategy
from ...training.config import TrainConfig, make_plan
from ...training.model_and_data import load_own_data, make_model, make_own_model
from ...training.run import load_data, precision_scope
from ...training.run_record import read_run
from ...training.user_model.user_data import UserData
from ...training.user_model.user_functions import explain_user_errors, load_functions

SavedModel = CheckpointFile | Path
"""A checkpoint of a run, or the file of its final model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Loss and metrics of a saved model on the validation data.

    Attributes:
        epoch: Epoch of the model, counted from 1; `None` if unknown.
        step: Number of trained steps of this epoch; `None` at the end of the epoch.
        samples: Number of samples; each sample counts once. `None` if unknown.
        metrics: Loss and metrics by name: `"loss"` with weight penalties, as in training; for
            kdist's networks also `"accuracy"`, from 0 to 1.
        weights: `"averaged"` or `"trained"`.
        file: Name of the file.
    """

    epoch: int | None
    step: int | None
    samples: int | None
    metrics: Mapping[str, float]
    weights: str
    file: str

    def __str__(self) -> str:
        return self._line(self._cells())

    def heading(self) -> str:
        """Return the heading of a table of evaluations."""
        return self._line({name: name for name in self._cells()})

    def _cells(self) -> dict[str, str]:
        return {
            "epoch": "-" if self.epoch is None else f"{self.epoch}",
            "step": "end" if self.step is None else f"{self.step}",
            "samples": "-" if self.samples is None else f"{self.samples}",
            **{name: f"{value:.4f}" for name, value in self.metrics.items()},
            "weights": self.weights,
            "file": self.file,
        }

    @staticmethod
    def _line(cells: Mapping[str, str]) -> str:
        *columns, (_, file) = cells.items()
        return "  ".join([*(text.rjust(max(len(name), 8)) for name, text in columns), file])


class Evaluator:
    """Evaluates the saved models of a run; with `averaged`, checkpoints with averaged weights."""

    def __init__(
        self, config: TrainConfig, *, averaged: bool, announce: Callable[[str], None]
    ) -> None:
        self._config, self._averaged = config, averaged
        self._strategy = MirroredStrategy(replicas=config.replicas)
        keras.utils.set_random_seed(config.seed)  # as in the run, for a random split of the data
        with precision_scope(config.precision, self._strategy.devices):
            if config.model is None:
                self._make_network(announce)
            else:
                self._make_own_model()

    def _make_network(self, announce: Callable[[str], None]) -> None:
        """Make a network of kdist, and take all test images, also for a run on a subset."""
        config, strategy = self._config, self._strategy
        data = load_data(dataclasses.replace(config, subset=None), announce=announce)
        # Test images are standardized by mean and deviation of the run's training images.
        trained = data if config.subset is None else data.subset(config.subset)
        plan = make_plan(config, replicas=strategy.num_replicas_in_sync)
        labels = data.test_labels
        batches = evaluation_batches(
            data.test_images,
            np.eye(data.classes)[labels] if config.label_smoothing else labels,
            batch_size=plan.validation_batch,
            standardization=Standardization.of(trained.train_images),
        )
        self._model = make_model(config, data, strategy, plan)
        self._arguments: dict[str, Any] = {"x": batches}
        self._samples: int | None = len(labels)
        self._files: tuple[str, ...] = ()

    def _make_own_model(self) -> None:
        config, strategy = self._config, self._strategy
        functions = load_functions(config.model or "", config.data or "data")
        plan, data = load_own_data(config, functions, replicas=strategy.num_replicas_in_sync)
        if data.validation is None:
            raise UserError(
                f"{functions.data_name}() of {functions.files[-1]} returns no"
                " validation data to evaluate on: return training and validation data"
            )
        validation = UserData(training=data.validation)
        self._arguments = validation.fit_arguments(batch=plan.validation_batch)
        self._arguments.pop("shuffle", None)
        self._model = make_own_model(config, functions, data, strategy, plan)
        self._samples = validation.known_samples()
        self._files = functions.files

    def evaluate(self, saved: SavedModel) -> Evaluation:
        """Evaluate a model; raise `DamagedCheckpointError` if a checkpoint cannot be read."""
        config, averaged = self._config, self._averaged
        with (
            explain_user_errors(*self._files),
            precision_scope(config.precision, self._strategy.devices),
        ):
            if isinstance(saved, CheckpointFile):
                restore_weights(self._model, saved, averaged=averaged)
            else:
                _load_weights(self._model, saved)
            results = self._model.evaluate(**self._arguments, verbose=0, return_dict=True)
        if isinstance(saved, Path) and config.model is None:
            # A training with averages saves them as the weights of its final model.
            averaged = config.ema_momentum is not None
        epoch, step = _read_position(saved)
        return Evaluation(
            epoch=epoch,
            step=step,
            samples=self._samples,
            metrics={name: float(value) for name, value in results.items()},
            weights="averaged" if averaged else "trained",
            file=(saved if isinstance(saved, Path) else saved.path).name,
        )


def _read_position(saved: SavedModel) -> tuple[int | None, int | None]:
    """Return the epoch and the step of an `Evaluation`."""
    if isinstance(saved, CheckpointFile):
        return saved.epoch + (saved.batch > 0), saved.batch or None
    return int(read_run(saved.parent, unfinished=True).summary_number("epochs") or 0) or None, None


def _load_weights(model: keras.Model, path: Path) -> None:
    try:
        with warnings.catch_warnings():
            # An evaluation needs no optimizer state.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            model.load_weights(path)
    except Exception as error:  # a file of a different model raises exceptions of any type
        raise UserError(
            f"the weights in {path} do not fit the model that the run's settings make now"
            f" ({first_message_line(error)}): evaluate the run with the code that trained it"
        ) from error
