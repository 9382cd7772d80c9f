"""`UserHyperModel`: a user's `build(hp)`, its batch and learning rate scaled to the replicas."""

from collections.abc import Callable
from typing import Any

import keras
import keras_tuner

from ..config import TrainConfig
from ..errors import UserError
from ..scaling import scale_learning_rate
from ..strategy import MirroredStrategy

#: The hyperparameter that takes the place of the batch size given, if `build(hp)` has it.
BATCH_SIZE = "batch_size"


class UserHyperModel(keras_tuner.HyperModel):
    """Makes models by a function, and trains them on arrays.

    A batch holds `batch_size` samples a replica. The learning rate that the model was compiled
    with is taken for one replica and the `batch_size` of `base`, and scaled by `lr_rule` to the
    trial's batch of all replicas. A learning rate that is a schedule is left alone.

    Args:
        build: From `HyperParameters` to a compiled model. Where it has a hyperparameter
            `batch_size`, that is the trial's.
        data: `(x, y), (x_val, y_val)`; `None` where nothing is trained.
        base: For its `batch_size`, `epochs` and `lr_rule`.
        strategy: Where the models are made.
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
        """Make the model, and scale its learning rate."""
        model = self._user_build(hp)
        if not isinstance(model, keras.Model) or model.optimizer is None:
            raise UserError(
                f"build(hp) returned {type(model).__name__}, expected a compiled keras.Model: call"
                " model.compile(...), and end the function with `return model`"
            )
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if not isinstance(
            optimizer.get_config()["learning_rate"], dict
        ):  # a schedule has a configuration of its own
            optimizer.learning_rate = scale_learning_rate(
                float(optimizer.learning_rate.numpy()),
                global_batch=self.global_batch(hp),
                reference_batch=self.base.batch_size,
                rule=self.base.lr_rule,
                optimizer=model.optimizer,
            )
        return model

    def global_batch(self, hp: Any) -> int:
        """Samples a step of a trial, over all replicas."""
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
