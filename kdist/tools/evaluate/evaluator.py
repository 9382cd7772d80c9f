"""`Evaluator`: a run's model, made once, evaluated with the weights of several files."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ...checkpoint.export import restore_weights
from ...data import evaluation_batches
from ...errors import UserError, error_line
from ...strategies.mirrored_strategy import MirroredStrategy
from ...training.config import TrainConfig, make_plan
from ...training.model import make_model, own_data, own_model, preprocessing, stock_batch_norms
from ...training.run import load_data, precision_scope
from ...training.user_model.data import UserData
from ...training.user_model.functions import explain_errors_of, load_functions
from .run_models import Evaluation, SavedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ModelAndData:
    """A compiled model, and the arguments of its `evaluate`."""

    model: keras.Model
    arguments: dict[str, Any]
    samples: int | None
    files: tuple[str, ...] = ()


class Evaluator:
    """Evaluates saved models of a run in turn, on exactly all validation data.

    Args:
        config: Settings of the run.
        averaged: Whether to use the averaged weights of checkpoints.
        announce: Called with a line that names the source of the images.

    Raises:
        UserError: Data or devices are missing, or the user's functions fail.
    """

    def __init__(
        self, config: TrainConfig, *, averaged: bool, announce: Callable[[str], None] = print
    ) -> None:
        self._config, self._averaged = config, averaged
        self._strategy = MirroredStrategy(replicas=config.replicas)
        keras.utils.set_random_seed(config.seed)  # as in the run, for a random split of the data
        with precision_scope(config.precision, self._strategy.devices):
            if config.model is None:
                self._parts = _network_parts(config, self._strategy, announce)
            else:
                self._parts = _own_parts(config, self._strategy)

    def evaluate(self, saved: SavedModel) -> Evaluation:
        """Evaluate a model.

        Args:
            saved: The model.

        Raises:
            DamagedCheckpointError: The checkpoint cannot be read.
            UserError: The file's weights do not fit the model of the run's settings.
        """
        model = self._parts.model
        with (
            explain_errors_of(*self._parts.files),
            precision_scope(self._config.precision, self._strategy.devices),
        ):
            if saved.checkpoint is not None:
                restore_weights(model, saved.checkpoint, averaged=self._averaged)
            else:
                _load_weights(model, saved.path)
            results = model.evaluate(**self._parts.arguments, verbose=0, return_dict=True)
        return Evaluation(
            epoch=saved.epoch,
            step=saved.step,
            samples=self._parts.samples,
            metrics={name: float(value) for name, value in results.items()},
            weights="averaged" if self._has_averages(saved) else "trained",
            file=saved.path.name,
        )

    def _has_averages(self, saved: SavedModel) -> bool:
        # A training with averages saves them as the weights of its final model.
        if saved.checkpoint is None and self._config.model is None:
            return self._config.ema_momentum is not None
        return self._averaged


def _network_parts(
    config: TrainConfig, strategy: MirroredStrategy, announce: Callable[[str], None]
) -> _ModelAndData:
    # All test images, also for a run on a subset. They are standardized by the run's training
    # images.
    data = load_data(dataclasses.replace(config, subset=None), announce=announce)
    trained = data if config.subset is None else data.subset(config.subset)
    prepared = preprocessing(config, trained)
    plan = make_plan(config, replicas=strategy.num_replicas_in_sync)
    labels = np.eye(data.classes)[data.test_labels] if config.label_smoothing else data.test_labels
    batches = evaluation_batches(
        prepared.evaluated(data.test_images),
        labels,
        batch_size=plan.validation_batch,
        standardization=prepared.standardization,
    )
    return _ModelAndData(
        model=make_model(config, data, strategy, plan),
        arguments={"x": batches},
        samples=len(labels),
    )


def _own_parts(config: TrainConfig, strategy: MirroredStrategy) -> _ModelAndData:
    functions = load_functions(config.model or "", config.data or "data")
    plan, data = own_data(config, functions, replicas=strategy.num_replicas_in_sync)
    if data.validation is None:
        raise UserError(
            f"{functions.data_name}() of {functions.files[-1]} returns no"
            " validation data to evaluate on: return training and validation data"
        )
    validation = UserData(training=data.validation)
    arguments = validation.fit_arguments(batch=plan.validation_batch)
    arguments.pop("shuffle", None)
    return _ModelAndData(
        model=own_model(config, functions, data, strategy, plan),
        arguments=arguments,
        samples=validation.samples(),
        files=functions.files,
    )


def _load_weights(model: keras.Model, path: Path) -> None:
    """Load weights from a file with stock batch norms into a model."""
    try:
        with stock_batch_norms(model), warnings.catch_warnings():
            # An evaluation needs no optimizer state.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            model.load_weights(path)
    except Exception as error:  # a file of a different model raises exceptions of any type
        raise UserError(
            f"{path} does not have the weights of the model that the run's settings make"
            f" ({error_line(error)}): evaluate it with the code that it was trained with"
        ) from error
