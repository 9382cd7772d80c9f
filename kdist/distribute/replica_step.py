"""What a replica runs in place of a step of Keras or of a user."""

from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..batch_norm.find import moving_statistics
from ..ops.replica_rows import replica_rows
from . import exact_step
from .global_batch import GlobalBatch
from .model_warnings import warn_of_gradient, warn_of_number, warn_of_write


def replica_step(
    strategy: Any, model: keras.Model, name: str, fn: Any, args: Any, attributes: Any
) -> Any:
    """The function that every replica runs, each on its part of the batch.

    Args:
        strategy: The `kdist.MirroredStrategy`.
        model: The model whose step it is.
        name: `"train_step"`, `"test_step"` or `"predict_step"` of Keras, or `"own_step"`.
        fn: The step.
        args: What `run` was given for it, of all replicas.
        attributes: What layers keep in attributes.
    """
    undivided = not any(
        isinstance(leaf, tf.distribute.DistributedValues) for leaf in keras.tree.flatten(args)
    )
    counts = None if undivided else _static_counts(strategy, args)
    state = strategy.model_state(model)
    seed = _upstream.global_seed(strategy)
    averaged = frozenset(id(variable.value) for variable in moving_statistics(model))
    has_results = name == "own_step" or not _upstream.computes_stock_metrics(model)

    @tf.autograph.experimental.do_not_convert
    def step(data: Any) -> Any:
        _upstream.use_global_seed(seed)
        data = replica_rows(data) if undivided else data
        if _upstream.takes_any_batch(model):
            data = exact_step.of_any_size(data)
        batch = GlobalBatch(
            data,
            counts,
            draws_by_place=strategy.draws == "by_place",
            is_own_step=name == "own_step",
            has_global_results=has_results and name != "predict_step",
            warn=lambda number: warn_of_number(number, state.warned),
            warn_of_gradient=lambda gradient: warn_of_gradient(gradient, state.warned),
            warn_of_write=lambda value: warn_of_write(value, state.warned),
            attributes=attributes,
            averaged=averaged,
        )
        attributes.restore()
        with _upstream.activate(batch):
            data = batch.pad_if_empty(data)
            if name == "predict_step":
                return exact_step.predict_step(fn, batch, data)
            if name == "own_step":
                return exact_step.own_step(model, fn, batch, data)
            if name == "train_step":
                return exact_step.train_step(model, batch, data, state.gradient_norms)
            return exact_step.test_step(model, batch, data)

    return step


def _static_counts(strategy: Any, args: Any) -> list[int] | None:
    """Samples of each replica, where they are known before the step runs."""
    first = next(leaf for leaf in keras.tree.flatten(args) if leaf is not None)
    counts = [part.shape[0] for part in strategy.experimental_local_results(first)]
    return None if None in counts else counts
