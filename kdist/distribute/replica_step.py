"""Make the function that each replica runs instead of a step of Keras or of the user."""

from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..batch_norm.find import moving_statistics
from ..ops.replica_rows import replica_rows
from . import exact_step
from .global_batch import GlobalBatch
from .model_warnings import warn_of_gradient, warn_of_number, warn_of_write
from .traced_step import observed


def replica_step(
    strategy: Any, model: keras.Model, name: str, fn: Any, args: Any, attributes: Any
) -> Any:
    """Return the function that each replica runs on its part of the batch.

    Args:
        strategy: kdist's, of one worker or of several.
        model: The model that the step belongs to.
        name: `"train_step"`, `"test_step"` or `"predict_step"` of Keras, or `"custom_step"`.
        fn: The step.
        args: The arguments of `run` for it, of all replicas.
        attributes: Tensors in attributes of layers.
    """
    undivided = not any(
        isinstance(leaf, tf.distribute.DistributedValues) for leaf in keras.tree.flatten(args)
    )
    is_known = not undivided and strategy.workers == 1
    counts = _static_counts(strategy, args) if is_known else _upstream.attached_counts(args)
    # With sizes as constants, each replica would read something else from its graph.
    is_uneven = _has_uneven_sizes(strategy, args)
    state = strategy.model_state(model)
    seed = _upstream.global_seed(strategy)
    averaged = frozenset(id(variable.value) for variable in moving_statistics(model))
    is_training = fn.__name__ == "train_step"
    has_results = name == "custom_step" or not _upstream.computes_stock_metrics(model)

    @tf.autograph.experimental.do_not_convert
    def step(data: Any) -> Any:
        _upstream.use_global_seed(seed)
        data = replica_rows(data) if undivided else data
        if is_uneven or _upstream.has_dynamic_batch_size(model):
            data = exact_step.erase_batch_size(data)
        batch = GlobalBatch(
            data,
            counts,
            transfer=strategy.gradient_transfer,
            is_custom_step=name == "custom_step",
            has_global_results=has_results and name != "predict_step",
            warn=lambda number: warn_of_number(number, state.warned),
            warn_of_gradient=lambda gradient: warn_of_gradient(gradient, state.warned),
            warn_of_write=lambda value: warn_of_write(value, state.warned),
            attributes=attributes,
            averaged=averaged,
        )
        attributes.restore()
        with _upstream.activate(batch), observed(state.telemetry if is_training else None):
            data = batch.pad_if_empty(data)
            if name == "predict_step":
                return exact_step.predict_step(fn, batch, data)
            if name == "custom_step":
                return exact_step.custom_step(model, fn, batch, data)
            if name == "train_step":
                return exact_step.train_step(model, batch, data, state.gradient_norms)
            return exact_step.test_step(model, batch, data)

    return step


def _first_leaf(args: Any) -> Any:
    return next(leaf for leaf in keras.tree.flatten(args) if leaf is not None)


def _has_uneven_sizes(strategy: Any, args: Any) -> bool:
    """Whether the replicas have known numbers of samples, which differ."""
    first = _first_leaf(args)
    if isinstance(first, tf.distribute.DistributedValues):
        return len({part.shape[0] for part in first.values}) > 1
    shape = tf.TensorShape(getattr(first, "shape", None))
    rows = shape[0] if shape.rank else None
    return rows is not None and bool(rows % strategy.num_replicas_in_sync)


def _static_counts(strategy: Any, args: Any) -> list[int] | None:
    """Return the number of samples on each replica, if known before the step runs."""
    first = _first_leaf(args)
    counts = [part.shape[0] for part in strategy.experimental_local_results(first)]
    return None if None in counts else counts
