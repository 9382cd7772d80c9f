"""Build before the first step what Keras builds in it, so that a checkpoint can be restored."""

from typing import Any

import keras

from .data_spec import batch_spec_of
from .fits import running_fit
from .hooks import hooks_of
from .internals import has_call, overridden_steps


def build_for_fit(model: keras.Model) -> None:
    """Build the layers and metrics of a model whose fit is about to begin.

    Without a strategy Keras leaves them to the first step. Nothing happens where the data do not
    say their shapes, or the model has a `train_step` of its own, which may build anything.

    Args:
        model: The compiled model.
    """
    fit = running_fit(model)
    if fit is None or fit.iterator is None or not has_call(model):
        return
    if "train_step" in overridden_steps(model):
        return
    build_alone(model, batch_spec_of(fit.iterator, any_batch_size=model.built))


def build_alone(model: keras.Model, batch: Any) -> None:
    """Build layers, metrics and optimizer for a batch; does nothing if that is `None`."""
    if batch is not None:
        with model.distribute_strategy.scope():
            model._symbolic_build(data_batch=batch)


def build_for_step(model: keras.Model, batch: Any) -> None:
    """Prepare a model made under a strategy of kdist for a step on batches of this spec."""
    hooks = hooks_of(model)
    if hooks is not None:
        hooks.prepare(model)
    if model.built and has_call(model) and not overridden_steps(model):
        build_alone(model, batch)
