"""`WideResNetHyperModel`: the WideResNet and its training, for KerasTuner."""

from typing import Any

import keras
import keras_tuner

from ..config import TrainConfig
from ..data import ImageData
from ..precision import computing_in
from ..run_parts import make_model, make_pipelines
from ..scaling import scale_learning_rate
from ..strategy import MirroredStrategy
from .space import SearchSpace
from .trial_config import trial_config


class WideResNetHyperModel(keras_tuner.HyperModel):
    """The WideResNet of `kdist train`, its settings drawn from a space.

    Args:
        space: What is drawn.
        base: The settings that are not. Its `batch_size` is the one that learning rates are drawn
            for, and its `epochs` are the whole of the learning rate's schedule, also where
            Hyperband grants fewer.
        data: The images.
        strategy: Where the models are made.

    Example:
        ```python
        base = TrainConfig(epochs=4, depth=10, width=1)
        space = SearchSpace({"batch_size": [16, 32]}, base=base)
        hypermodel = WideResNetHyperModel(space, base, fashion_mnist(), strategy)
        ```
    """

    #: For `ReplicaTuner`: no model need be built to know the space.
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
        """Declare the space."""
        self.space.declare(hp)

    def config(self, hp: Any) -> TrainConfig:
        """The settings of a trial."""
        return trial_config(self.base, self.space.decode(hp.values))

    def build(self, hp: Any) -> keras.Model:
        """Make and compile the model."""
        self.space.declare(hp)
        config = self.config(hp)
        replicas = self.strategy.num_replicas_in_sync
        rate = scale_learning_rate(
            config.base_lr, replicas=replicas, rule=config.lr_rule, optimizer=config.optimizer
        )
        steps = -(-len(self.data.train_images) // (replicas * config.batch_size))
        with computing_in(config.precision, self.strategy.devices):
            return make_model(
                config, self.data, self.strategy, learning_rate=rate, steps_per_epoch=steps
            )

    def fit(self, hp: Any, model: keras.Model, *_: Any, **kwargs: Any) -> Any:
        """Train the model on the images; `epochs` and `initial_epoch` are Hyperband's."""
        config = self.config(hp)
        callbacks = list(kwargs.pop("callbacks", ()))
        if config.ema_momentum is not None:
            # Before the last, with which KerasTuner saves the weights: it is to see the average.
            callbacks.insert(-1, keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
        with computing_in(config.precision, self.strategy.devices):
            training, validation = make_pipelines(
                config, self.data, replicas=self.strategy.num_replicas_in_sync
            )
            return model.fit(
                training,
                shuffle=False,  # the pipeline shuffles
                validation_data=validation,
                callbacks=callbacks,
                **{"epochs": config.epochs, **kwargs},
            )
