"""Evaluate saved models: of runs on images, and of runs with a model of the user's."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..checkpoint.export import restore_weights
from ..checkpoint.store import CheckpointFile
from ..data import ImageData, evaluation_batches
from ..distribute.made_outside import kdist_classes
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError, error_line
from ..training.config import TrainConfig, make_plan
from ..training.images import load_data, preprocessing
from ..training.model import make_model, own_data, own_model, stock_batch_norms
from ..training.precision import precision_scope
from ..user_model.data import UserData
from ..user_model.functions import UserFunctions, explain_errors_of, load_functions
from .saved_model import Evaluation, SavedModel

_ONE_HOT = ("categorical_crossentropy", "categorical_focal_crossentropy")


class Evaluator:
    """Evaluates saved models, one after the other, on exactly all test images.

    Args:
        config: The settings of the run that the models are from.
        averaged: Whether to take the averages of the weights.
        announce: Called with a line that names the source of the images.

    Raises:
        UserError: The images or the devices are not there.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        averaged: bool,
        announce: Callable[[str], None] = print,
    ) -> None:
        self._config = config
        self._averaged = averaged
        # All test images, also of a run on a subset, whose training images standardize them.
        everything = dataclasses.replace(config, subset=None)
        self._data: ImageData = load_data(everything, announce=announce)
        subset = config.subset
        trained = self._data if subset is None else self._data.subset(subset)
        self._prepared = preprocessing(config, trained)
        self._strategy = MirroredStrategy(replicas=config.replicas)
        self._plan = make_plan(config, replicas=self._strategy.num_replicas_in_sync)
        self._of_run: tuple[keras.Model, keras.Model] | None = None

    def evaluate(self, saved: SavedModel) -> Evaluation:
        """Evaluate a model.

        Args:
            saved: The model.

        Raises:
            DamagedCheckpointError: It is a checkpoint that cannot be read.
            UserError: It is of other images or classes, of another model than its run, or a file
                that Keras cannot open.
        """
        with precision_scope(self._config.precision, self._strategy.devices):
            if saved.checkpoint is not None:
                model = self._restored(saved.checkpoint)
            else:
                model = self._evaluable(self._opened(saved.path))
            results = model.evaluate(self._batches(model), verbose=0, return_dict=True)
        images, weights = len(self._data.test_images), self._kind_of_weights(saved)
        return _evaluation_of(results, saved, images=images, weights=weights)

    def _kind_of_weights(self, saved: SavedModel) -> str:
        if saved.checkpoint is not None:
            return "averaged" if self._averaged else "trained"
        if saved.epoch is None:
            return "saved"
        # A training that keeps averages ends with them in place of the weights.
        return "trained" if self._config.ema_momentum is None else "averaged"

    def _restored(self, checkpoint: CheckpointFile) -> keras.Model:
        """The model of the run, which is made and traced once, with the weights of a checkpoint."""
        if self._of_run is None:
            model = make_model(self._config, self._data, self._strategy, self._plan)
            self._of_run = model, self._evaluable(model)
        model, evaluable = self._of_run
        restore_weights(model, checkpoint, averaged=self._averaged)
        return evaluable

    def _opened(self, path: Path) -> keras.Model:
        try:
            known = kdist_classes()
            return self._strategy.build(lambda: keras.models.load_model(path, custom_objects=known))
        except Exception as error:  # whatever a damaged file or a user's own class raises
            raise UserError(f"Keras cannot open {path}: {error_line(error)}") from error

    def _evaluable(self, model: keras.Model) -> keras.Model:
        """A compiled model of the same weights, whose only metric is the accuracy."""
        self._check_shapes(model)
        loss = getattr(model, "loss", None) or _usual_loss(model)
        with self._strategy.scope():
            model.compile(loss=loss, metrics=["accuracy"])
        return model

    def _check_shapes(self, model: keras.Model) -> None:
        shape, classes = self._prepared.image_shape, self._data.classes
        with _unknown_shapes_are_tried():
            taken, given = model.input_shape[1:], model.output_shape[-1]
            if _fits(taken, shape) and given == classes:
                return
            received = f"{model.name} takes images of {_shape(taken)} and has {given} classes"
            if (taken[-1], given) == (shape[-1], classes):
                raise UserError(
                    f"{received}, but images of {self._config.dataset} are evaluated as"
                    f" {_shape(shape)}: if the run has cropped them, as with --augmentation towers,"
                    " evaluate the run's folder, which knows how, in place of the file"
                )
            raise UserError(
                f"{received}, but {self._config.dataset} has {_shape(shape)} and {classes}: pass"
                " the --dataset that it was trained on"
            )

    def _batches(self, model: keras.Model) -> Any:
        labels = self._data.test_labels
        if _takes_one_hot(model.loss):
            labels = np.eye(self._data.classes)[labels]
        return evaluation_batches(
            self._prepared.evaluated(self._data.test_images),
            labels,
            batch_size=self._plan.validation_batch,
            standardization=self._prepared.standardization,
        )


@contextmanager
def _unknown_shapes_are_tried() -> Iterator[None]:
    """A model with a class of its own may not know its shapes."""
    try:
        yield
    except (AttributeError, TypeError, IndexError):
        return


def _usual_loss(model: keras.Model) -> keras.losses.Loss:
    """The loss of a classifier that was saved without one."""
    last = getattr(model.layers[-1], "activation", None) if model.layers else None
    is_softmax = last is keras.activations.softmax or isinstance(
        model.layers[-1] if model.layers else None, keras.layers.Softmax
    )
    return keras.losses.SparseCategoricalCrossentropy(from_logits=not is_softmax)


def _takes_one_hot(loss: Any) -> bool:
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    return name in _ONE_HOT or type(loss).__name__.startswith("Categorical")


def _fits(taken: Sequence[int | None], shape: Sequence[int]) -> bool:
    """Whether a model takes images of a shape; its own may have sides of any length, `None`."""
    pairs = zip(taken, shape, strict=True)
    return len(taken) == len(shape) and all(own in (None, side) for own, side in pairs)


def _shape(shape: Any) -> str:
    return " x ".join(map(str, shape))


class OwnEvaluator:
    """Evaluates saved models of a user's run, one after the other, on its validation data.

    The model is made anew by the user's function, so it need not be one that a file describes.

    Args:
        config: The settings of the run.
        averaged: Whether to take the averages of the weights.

    Raises:
        UserError: The functions fail, there are no validation data, or the devices are not there.
    """

    def __init__(self, config: TrainConfig, *, averaged: bool) -> None:
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
            validation = _validation_of(data, functions)
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
        return _evaluation_of(results, saved, images=self._images, weights=weights)


def _validation_of(data: UserData, functions: UserFunctions) -> UserData:
    """The validation data alone."""
    if data.validation is None:
        raise UserError(
            f"{functions.data_name}() of {functions.files[-1]} returns no"
            " validation data to evaluate on: return training and validation data"
        )
    return UserData(training=data.validation)


def _evaluation_of(
    results: Mapping[str, Any], saved: SavedModel, *, images: int | None, weights: str
) -> Evaluation:
    """What `model.evaluate` has returned, as a line of the table."""
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
        raise UserError(
            f"{path} does not have the weights of the model that the run's function makes"
            f" ({error_line(error)}): put the function back as it was"
        ) from error
