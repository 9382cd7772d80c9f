"""`OwnEvaluator`: evaluates the saved models of a run whose model and data are the user's."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from ..checkpoint.export import restore_weights
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..training.config import TrainConfig
from ..training.model import own_data, own_model, stock_batch_norms
from ..training.settings import precision_scope
from ..user_model.code_errors import explain_errors_of
from ..user_model.data import UserData
from ..user_model.functions import UserFunctions, load_functions
from .evaluation import Evaluation
from .options import Views
from .saved_model import SavedModel


class OwnEvaluator:
    """Evaluates saved models of a user's run, one after the other, on its validation data.

    The model is made anew by the user's function, so it need not be one that a file describes.

    Args:
        config: The settings of the run.
        views: `"none"`: only images have mirror images.
        averaged: Whether to take the averages of the weights.

    Raises:
        UserError: The functions fail, there are no validation data, or the devices are not there.
    """

    def __init__(self, config: TrainConfig, *, views: Views, averaged: bool) -> None:
        if views != "none":
            raise UserError(
                f"received --views {views}, which is for images, and a run of {config.model}:"
                " remove it"
            )
        self._averaged = averaged
        self._precision = config.precision
        self._strategy = MirroredStrategy(replicas=config.replicas)
        # As in the run, for data that are divided at random.
        keras.utils.set_random_seed(config.seed)
        functions = load_functions(config.model or "", config.data or "data")
        self._files = functions.files
        replicas = self._strategy.num_replicas_in_sync
        with precision_scope(config.precision, self._strategy.devices):
            plan, data = own_data(config, functions, replicas=replicas)
            validation = validation_of(data, functions)
            self._model = own_model(config, functions, data, self._strategy, plan)
        self._images = validation.samples()
        self._arguments: dict[str, Any] = validation.fit_arguments(batch=plan.validation_batch)
        self._arguments.pop("shuffle", None)

    def evaluate(self, saved: SavedModel) -> Evaluation:
        """Evaluate a model.

        Args:
            saved: The model.

        Raises:
            DamagedCheckpointError: It is a checkpoint that cannot be read.
            UserError: It is of another model than the user's function makes.
        """
        with (
            explain_errors_of(*self._files),
            precision_scope(self._precision, self._strategy.devices),
        ):
            if saved.checkpoint is not None:
                restore_weights(self._model, saved.checkpoint, averaged=self._averaged)
            else:
                _load_weights(self._model, saved.path)
            results = self._model.evaluate(**self._arguments, verbose=0, return_dict=True)
        weights = "averaged" if self._averaged else "trained"
        return evaluation_of(results, saved, images=self._images, weights=weights)


def validation_of(data: UserData, functions: UserFunctions) -> UserData:
    """Return the validation data alone.

    Args:
        data: Of the user's.
        functions: That have made them.

    Raises:
        UserError: There are none.
    """
    if data.validation is None:
        raise UserError(
            f"{functions.data_name}() of {functions.files[-1]} returns no"
            " validation data to evaluate on: return training and validation data"
        )
    return UserData(training=data.validation)


def evaluation_of(
    results: Mapping[str, Any], saved: SavedModel, *, images: int | None, weights: str
) -> Evaluation:
    """Return what `model.evaluate` has returned, as a line of the table.

    Args:
        results: By name.
        saved: The model.
        images: Samples that were evaluated; `None` if unknown.
        weights: Which they are, as in `Evaluation`.
    """
    measured = {name: float(value) for name, value in results.items()}
    return Evaluation(
        epoch=saved.epoch,
        step=saved.step,
        images=images,
        accuracy=measured.pop("accuracy", None),
        loss=measured.pop("loss", None),
        weights=weights,
        file=saved.path.name,
        metrics=measured,
    )


def _load_weights(model: keras.Model, path: Path) -> None:
    """Give a model the weights of a file, which has those of stock batch norms."""
    try:
        with stock_batch_norms(model), warnings.catch_warnings():
            # The model is evaluated, which takes no optimizer.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            model.load_weights(path)
    except Exception as error:  # whatever a file of another model raises
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"{path} does not have the weights of the model that the run's function makes"
            f" ({lines[0]}): put the function back as it was"
        ) from error
