"""Epochs of `fit` of a user's model, with stock Keras and with kdist."""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from ..user_model.compiled_model import checked_model
from ..user_model.data import UserData, first_samples
from ..user_model.functions import load_functions
from .keras_training import EpochTimer, stock_strategy
from .workload import Workload


def stock_model(*, replicas: int, **settings: Any) -> Workload:
    """Train with stock Keras; on several replicas, under `tf.distribute.MirroredStrategy`."""
    scope = contextlib.nullcontext() if replicas == 1 else stock_strategy(replicas).scope()
    return _workload(scope, lambda make: make(), **settings)


def kdist_model(*, replicas: int, **settings: Any) -> Workload:
    """Train the same model with `kdist.MirroredStrategy`."""
    import kdist

    strategy = kdist.MirroredStrategy(replicas=replicas)
    return _workload(strategy.scope(), strategy.build, **settings)


def _workload(scope: Any, build: Any, *, model: str, data: str, batch: int, steps: int) -> Workload:
    functions = load_functions(model, data)
    keras.utils.set_random_seed(0)
    with scope:
        made = checked_model(build(functions.make_model), function=functions.build_name)
    loaded = functions.load_data(batch)
    training = UserData(training=_first_steps(loaded.training, batch, steps))
    arguments, epoch = training.fit_arguments(batch=batch), EpochTimer()

    def turn() -> float:
        made.fit(**arguments, callbacks=[epoch], verbose=0)
        return epoch.seconds

    known = training.samples()
    return Workload(work=turn, facts={"samples": training.count() if known is None else known})


def _first_steps(training: Any, batch: int, steps: int) -> Any:
    """The first batches of the data; of a `PyDataset`, all of them."""
    if isinstance(training, tf.data.Dataset):
        return training.take(steps)
    if not isinstance(training, tuple):
        return training
    return first_samples(training, batch * steps)
