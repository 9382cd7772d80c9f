"""`Evaluator`: evaluates saved models on the test images of one data set."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .. import layers, optimizers
from ..checkpoint.export import import_classes, restore_weights
from ..checkpoint.store import CheckpointFile
from ..data import ImageData, evaluation_batches
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..optimizers import warm_up
from ..training.config import TrainConfig, make_plan
from ..training.images import load_data, preprocessing
from ..training.model import make_model
from ..training.settings import precision_scope
from .evaluation import Evaluation
from .options import Views
from .saved_model import SavedModel
from .views import averaged_over_views

_ONE_HOT = ("categorical_crossentropy", "categorical_focal_crossentropy")


class Evaluator:
    """Evaluates saved models, one after the other, on exactly all test images.

    Args:
        config: The settings of the run that the models are from.
        views: As in `EvaluateOptions`.
        averaged: Whether to take the averages of the weights.
        announce: Called with a line that names the source of the images.

    Raises:
        UserError: The images or the devices are not there.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        views: Views,
        averaged: bool,
        announce: Callable[[str], None] = print,
    ) -> None:
        self._config = config
        self._views = views
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
        return Evaluation(
            epoch=saved.epoch,
            step=saved.step,
            images=len(self._data.test_images),
            accuracy=float(results["accuracy"]),
            loss=float(results["loss"]),
            weights=self._kind_of_weights(saved),
            file=saved.path.name,
        )

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
        import_classes(layers, optimizers, warm_up)  # what a file may be made of
        try:
            return self._strategy.build(lambda: keras.models.load_model(path))
        except Exception as error:  # whatever a damaged file or a user's own class raises
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise UserError(f"Keras cannot open {path}: {lines[0]}") from error

    def _evaluable(self, model: keras.Model) -> keras.Model:
        """A compiled model of the same weights, whose only metric is the accuracy."""
        self._check_shapes(model)
        loss = getattr(model, "loss", None) or _usual_loss(model)
        with self._strategy.scope():
            model = averaged_over_views(model, self._views, self._prepared.image_shape)
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
