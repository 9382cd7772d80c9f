"""KerasTuner's hypermodels: a built-in network, and a user's `build(hp)`."""

from collections.abc import Callable
from typing import Any

import keras
import keras_tuner

from .._upstream.keras_tuner import index_of_saver
from ..callbacks.print_throughput import PrintThroughput, counts_images
from ..data import ImageData
from ..errors import UserError
from ..strategies.mirrored_strategy import MirroredStrategy
from ..training.config import TrainConfig, make_plan
from ..training.images import make_pipelines
from ..training.model import make_model
from ..training.precision import precision_scope
from ..training.user_model.compiled_model import checked_model, scale_compiled_rate
from ..training.user_model.data import checked_data
from .search_scores import SearchError
from .search_space import SearchSpace
from .search_trials import trial_config


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
        self, space: SearchSpace, base: TrainConfig, data: ImageData, strategy: MirroredStrategy
    ) -> None:
        super().__init__()
        self.space, self.base = space, base
        self.data, self.strategy = data, strategy

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


#: The hyperparameter that replaces the given batch size, if `build(hp)` has it.
BATCH_SIZE = "batch_size"


class UserHyperModel(keras_tuner.HyperModel):
    """A KerasTuner hypermodel from a `build(hp)` function, trained on arrays.

    A batch has `batch_size` samples per replica. The learning rate that the model was compiled with
    is taken to be for one replica with the `batch_size` of `base`. It is scaled by `lr_rule` to the
    trial's global batch. A learning rate schedule is not scaled. Batched data, such as a
    `tf.data.Dataset`, keep their batches, and the learning rate is not scaled.

    Args:
        build: A function from `HyperParameters` to a compiled model. If it declares a
            hyperparameter `batch_size`, that is the trial's batch size.
        data: `(x, y), (x_val, y_val)`, or anything else that a data function may return; or a
            function from the global batch size to such data; `None` if nothing will be trained.
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
        hypermodel = kdist.study.UserHyperModel(build, data, TrainConfig(epochs=5), strategy)
        ```
    """

    def __init__(
        self, build: Callable[[Any], Any], data: Any, base: TrainConfig, strategy: MirroredStrategy
    ) -> None:
        super().__init__()
        self._user_build = build
        self._make_data: Callable[[int], Any] | None = data if callable(data) else None
        self._data = None if data is None or callable(data) else checked_data(data)
        #: The samples per step that the data decide themselves; `None` for all other data.
        self.own_batch = None if self._data is None else self._data.own_batch()
        self.base = base
        self.strategy = strategy

    def build(self, hp: Any) -> keras.Model:
        """Build the model, and scale its learning rate."""
        model = checked_model(self._user_build(hp))
        if self._data is None or self._data.has_arrays:
            scale_compiled_rate(
                model,
                global_batch=self.global_batch(hp),
                reference_batch=self.base.batch_size,
                rule=self.base.lr_rule,
            )
        elif BATCH_SIZE in hp.values:
            raise SearchError(
                f"build(hp) declares {BATCH_SIZE}, but the data have batches of their own: write"
                f" the data function as def data({BATCH_SIZE}):, remove the hyperparameter, or"
                " return arrays"
            )
        return model

    def global_batch(self, hp: Any) -> int:
        """Return the samples per step of a trial, over all replicas."""
        if self.own_batch is not None:
            return self.own_batch
        batch = hp.values.get(BATCH_SIZE, self.base.batch_size)
        return int(batch * self.strategy.num_replicas_in_sync)

    def fit(self, hp: Any, model: keras.Model, *_: Any, **kwargs: Any) -> Any:
        """Train the model on the data."""
        batch = self.global_batch(hp)
        data = self._data if self._make_data is None else checked_data(self._make_data(batch))
        if data is None:
            raise UserError("the hypermodel was made without data: pass (x, y), (x_val, y_val)")
        if not counts_images(model):  # as with a train_step of its own
            images = data.samples() or data.count()
            for callback in kwargs.get("callbacks") or ():
                if isinstance(callback, PrintThroughput):
                    callback.total_images = images
        return model.fit(
            **data.fit_arguments(batch=batch), **{"epochs": self.base.epochs, **kwargs}
        )
