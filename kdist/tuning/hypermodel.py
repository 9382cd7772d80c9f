"""`WideResNetHyperModel`: a KerasTuner hypermodel of a built-in network."""

from typing import Any

import keras
import keras_tuner

from .._upstream.keras_tuner import index_of_saver
from ..data import ImageData
from ..distribute.mirrored_strategy import MirroredStrategy
from ..training.config import TrainConfig, make_plan
from ..training.images import make_pipelines
from ..training.model import make_model
from ..training.settings import precision_scope
from .space import SearchSpace
from .trial_config import trial_config


class WideResNetHyperModel(keras_tuner.HyperModel):
    """A KerasTuner hypermodel of the network that `base` names, with settings drawn from a space.

    Args:
        space: The settings to tune.
        base: The other settings. Learning rates are drawn for its `batch_size`. The learning rate
            schedule spans its `epochs`, even if Hyperband trains a trial for fewer.
        data: The images.
        strategy: The strategy that trains the models.

    Example:
        ```python
        base = TrainConfig(epochs=4, depth=10, width=1)
        space = SearchSpace({"batch_size": [16, 32]}, base=base)
        hypermodel = WideResNetHyperModel(space, base, fashion_mnist(), strategy)
        ```
    """

    #: For `ReplicaTuner`: the space is known without building a model.
    declares_all = True

    def __init__(
        self,
        space: SearchSpace,
        base: TrainConfig,
        data: ImageData,
        strategy: MirroredStrategy,
    ) -> None:
        super().__init__()
        self.space = space
        self.base = base
        self.data = data
        self.strategy = strategy

    def declare_hyperparameters(self, hp: Any) -> None:
        """Declare the search space."""
        self.space.declare(hp)

    def config(self, hp: Any) -> TrainConfig:
        """Return the settings of a trial."""
        return trial_config(self.base, self.space.decode(hp.values))

    def build(self, hp: Any) -> keras.Model:
        """Make and compile the model."""
        self.space.declare(hp)
        config = self.config(hp)
        plan = make_plan(config, replicas=self.strategy.num_replicas_in_sync)
        with precision_scope(config.precision, self.strategy.devices):
            return make_model(config, self.data, self.strategy, plan)

    def fit(self, hp: Any, model: keras.Model, *_: Any, **kwargs: Any) -> Any:
        """Train the model on the images; `epochs` and `initial_epoch` are Hyperband's."""
        config = self.config(hp)
        plan = make_plan(config, replicas=self.strategy.num_replicas_in_sync)
        callbacks = list(kwargs.pop("callbacks", ()))
        if config.ema_momentum is not None:
            # KerasTuner is to save the average.
            average = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
            callbacks.insert(index_of_saver(callbacks), average)
        with precision_scope(config.precision, self.strategy.devices):
            training, validation = make_pipelines(config, self.data, plan)
            return model.fit(
                training,
                shuffle=False,  # the pipeline shuffles
                validation_data=validation,
                callbacks=callbacks,
                **{"epochs": config.epochs, **kwargs},
            )
