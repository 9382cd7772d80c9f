"""`UserHyperModel`: a user's `build(hp)`, with batch and learning rate scaled to the replicas."""

from collections.abc import Callable
from typing import Any

import keras
import keras_tuner

from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import UserError
from ..scaling import scale_learning_rate
from ..training.config import TrainConfig

#: The hyperparameter that replaces the given batch size, if `build(hp)` has it.
BATCH_SIZE = "batch_size"


class UserHyperModel(keras_tuner.HyperModel):
    """A KerasTuner hypermodel from a `build(hp)` function, trained on arrays.

    A batch has `batch_size` samples per replica. The learning rate that the model was compiled with
    is meant for one replica with the `batch_size` of `base`. It is scaled by `lr_rule` to the
    trial's global batch. A learning rate schedule is not scaled.

    Args:
        build: A function from `HyperParameters` to a compiled model. If it declares a
            hyperparameter `batch_size`, that is the trial's batch size.
        data: `(x, y), (x_val, y_val)`; `None` if nothing will be trained.
        base: The settings; only `batch_size`, `epochs` and `lr_rule` are used.
        strategy: The strategy that trains the models.

    Example:
        ```python
        def build(hp):
            hp.Choice("batch_size", [32, 64])
            model = keras.Sequential([keras.layers.Dense(hp.Int("units", 8, 64))])
            model.compile(keras.optimizers.SGD(0.01), "mse")
            return model


        strategy = kdist.MirroredStrategy(replicas=2)
        data = (x, y), (x_val, y_val)
        hypermodel = kdist.tuning.UserHyperModel(build, data, TrainConfig(epochs=5), strategy)
        ```
    """

    def __init__(
        self,
        build: Callable[[Any], Any],
        data: tuple[tuple[Any, Any], tuple[Any, Any]] | None,
        base: TrainConfig,
        strategy: MirroredStrategy,
    ) -> None:
        super().__init__()
        self._user_build = build
        self._data = data
        self.base = base
        self.strategy = strategy

    def build(self, hp: Any) -> keras.Model:
        """Build the model, and scale its learning rate."""
        model = self._user_build(hp)
        if not isinstance(model, keras.Model) or not model.compiled:
            found = type(model).__name__
            if isinstance(model, keras.Model):
                found += " that is not compiled"
            raise UserError(
                f"build(hp) returned {found}, expected a compiled keras.Model: call"
                " model.compile(...), and end the function with `return model`"
            )
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if not isinstance(
            optimizer.get_config()["learning_rate"], dict
        ):  # the configuration of a schedule is a dictionary
            optimizer.learning_rate = scale_learning_rate(
                float(optimizer.learning_rate.numpy()),
                global_batch=self.global_batch(hp),
                reference_batch=self.base.batch_size,
                rule=self.base.lr_rule,
                optimizer=model.optimizer,
            )
        return model

    def global_batch(self, hp: Any) -> int:
        """Return the samples per step of a trial, over all replicas."""
        batch: int = hp.values.get(BATCH_SIZE, self.base.batch_size)
        replicas: int = self.strategy.num_replicas_in_sync
        return batch * replicas

    def fit(self, hp: Any, model: keras.Model, *_: Any, **kwargs: Any) -> Any:
        """Train the model on the arrays."""
        if self._data is None:
            raise UserError("the hypermodel was made without data: pass (x, y), (x_val, y_val)")
        (x, y), validation = self._data
        return model.fit(
            x,
            y,
            batch_size=self.global_batch(hp),
            validation_data=validation,
            **{"epochs": self.base.epochs, **kwargs},
        )
