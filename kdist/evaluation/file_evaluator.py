"""`FileEvaluator`: evaluates a `.keras` file on data of the user's."""

import inspect
from types import ModuleType
from typing import Any

import keras

from ..distribute.mirrored_strategy import MirroredStrategy
from ..distribute.saved_models import load_model, missing_part
from ..errors import UserError
from ..training.config import TrainConfig
from ..user_model.code_errors import explain_errors_of
from ..user_model.compiled_model import check_input
from ..user_model.functions import load_data_function
from .evaluation import Evaluation
from .own_evaluator import evaluation_of, validation_of
from .saved_model import SavedModel


class FileEvaluator:
    """Evaluates a saved model on the user's validation data, by its own loss and metrics.

    The classes and functions that the model is made of may be in the file of the data.

    Args:
        data: `"FILE.py:FUNCTION"` of the data.
        config: The settings: devices, batch and seed.
        saved: The model.

    Raises:
        UserError: The function fails, there are no validation data, Keras cannot open the model, or
            it does not take the data.
    """

    def __init__(self, data: str, config: TrainConfig, saved: SavedModel) -> None:
        self._strategy = MirroredStrategy(replicas=config.replicas)
        keras.utils.set_random_seed(config.seed)  # for data that are divided at random
        functions, module = load_data_function(data, lambda: None)
        self._files = functions.files
        batch = config.val_batch_size * self._strategy.num_replicas_in_sync
        loaded = functions.load_data(batch)
        self._validation = validation_of(loaded, functions)
        given = None if config.val_batch_size == TrainConfig.val_batch_size else batch
        functions.check_batch(self._validation, given, option="val-batch-size")
        self._batch = batch
        self._model = self._opened(saved, module)

    def _opened(self, saved: SavedModel, module: ModuleType) -> keras.Model:
        known = _classes_in(module)
        try:
            with explain_errors_of(*self._files):
                model = load_model(saved.path, strategy=self._strategy, custom_objects=known)
        except UserError as error:
            name = missing_part(error.__cause__)
            if name is None:
                raise
            raise UserError(
                f"{saved.path} is made of {name}, which is not in {self._files[0]}: import it there"
            ) from error
        if not model.compiled:
            raise UserError(
                f"{saved.path} has a model that is not compiled, so it has no loss and no metrics:"
                " call model.compile(...) before model.save"
            )
        with self._strategy.scope():
            check_input(
                model,
                self._validation.training,
                what="validation data",
                function=saved.path.name,
            )
        return model

    def evaluate(self, saved: SavedModel) -> Evaluation:
        """Evaluate the model.

        Args:
            saved: It, which is open.
        """
        arguments = self._validation.fit_arguments(batch=self._batch)
        arguments.pop("shuffle", None)
        with explain_errors_of(*self._files):
            results = self._model.evaluate(**arguments, verbose=0, return_dict=True)
        return evaluation_of(results, saved, images=self._validation.samples(), weights="saved")


def _classes_in(module: ModuleType) -> dict[str, Any]:
    """The classes and functions in a file that a model may be made of, but for Keras's own."""
    return {
        name: value
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and (value.__module__ or "").partition(".")[0] != "keras"
    }
