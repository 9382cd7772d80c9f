"""The parts of a run whose model and data are the user's."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..callbacks.print_throughput import counts_images
from ..errors import UserError
from ..user_model.compiled_model import (
    check_input,
    checked_model,
    compiled_rate,
    scale_compiled_rate,
    set_compiled_rate,
)
from ..user_model.data import UserData
from ..user_model.functions import UserFunctions, load_functions
from .config import TrainConfig
from .parts import RunParts
from .plan import TrainPlan, resumed_plan
from .settings import Batches

if TYPE_CHECKING:
    from ..distribute.exact_strategy import ExactStrategy


def own_parts(
    config: TrainConfig, strategy: "ExactStrategy", saved: Mapping[str, Any] | None
) -> RunParts:
    """Load the user's functions, and make the model and the data.

    Args:
        config: The settings, with `model`.
        strategy: The strategy that trains the model.
        saved: The plan of a run that is resumed, which keeps its batches and its learning rate.

    Raises:
        UserError: The functions fail, or what they return cannot be trained.
    """
    functions = load_functions(config.model or "", config.data or "data")
    plan, data = own_data(config, functions, replicas=strategy.num_replicas_in_sync, saved=saved)
    rate = None if saved is None else plan.learning_rate
    model = own_model(config, functions, data, strategy, plan, rate=rate)
    validation = data.validation if config.validate else None
    arguments = dataclasses.replace(data, validation=validation).fit_arguments(
        batch=plan.global_batch, validation_batch=plan.validation_batch
    )
    return RunParts(
        plan=dataclasses.replace(plan, learning_rate=compiled_rate(model)),
        model=model,
        fit=arguments,
        source=f"{functions.data_name}() of {Path(functions.files[-1]).name}",
        training_images=_training_samples(model, data),
        validation_images=UserData(training=data.validation).samples(),
        arrays=_arrays(data),
    )


def own_data(
    config: TrainConfig,
    functions: UserFunctions,
    *,
    replicas: int,
    saved: Mapping[str, Any] | None = None,
) -> tuple[TrainPlan, UserData]:
    """Load the user's data, and plan their batches.

    Args:
        config: The settings.
        functions: The user's.
        replicas: Number of replicas.
        saved: As in `own_parts`.

    Returns:
        The plan, with no learning rate yet unless it was saved, and the data.

    Raises:
        UserError: As in `own_parts`.
    """
    plan = TrainPlan(
        replicas=replicas,
        global_batch=replicas * config.batch_size,
        validation_batch=replicas * config.val_batch_size,
        learning_rate=0.0,
    )
    if saved is not None:
        plan = resumed_plan(saved, replicas=replicas)
    data = functions.load_data(plan.global_batch, plan.validation_batch)
    for name in ("batch_size", "val_batch_size"):
        given = getattr(config, name)
        given = None if given == getattr(Batches, name) else given
        functions.check_batch(data, given, option=name.replace("_", "-"))
    if (config.monitor or "").startswith("val_") and data.validation is None:
        raise UserError(
            f"monitor={config.monitor} is of a validation, but {functions.data_name}()"
            " returns no validation data: return some, or monitor a metric of the training"
        )
    if not data.has_arrays and not functions.takes_batch:
        # Also in a resumed run: to begin to read shuffled data changes the order of the next epoch.
        batch = data.first_batch()
        plan = plan if saved is not None else dataclasses.replace(plan, global_batch=batch)
    return plan, data


def own_model(
    config: TrainConfig,
    functions: UserFunctions,
    data: UserData,
    strategy: "ExactStrategy",
    plan: TrainPlan,
    *,
    rate: float | None = None,
) -> keras.Model:
    """Make the user's model in the strategy's scope, its learning rate scaled.

    Args:
        config: The settings.
        functions: The user's.
        data: The user's.
        strategy: The strategy that trains the model.
        plan: The batches.
        rate: The learning rate of `model.optimizer`; `None` for the compiled one, scaled.

    Raises:
        UserError: It is not a compiled model, or does not take the data.
    """
    name = f"{functions.build_name}({'hp' if functions.takes_hp else ''})"

    def make() -> keras.Model:
        model = checked_model(functions.make_model(), function=name)
        if data.has_arrays or functions.takes_batch:
            scale_compiled_rate(
                model,
                global_batch=plan.global_batch,
                reference_batch=config.batch_size,
                rule=config.lr_rule,
            )
        if rate is not None:
            set_compiled_rate(model, rate)
        return model

    model = strategy.build(make)
    with strategy.scope():
        check_input(model, data.training, function=name)
        check_input(model, data.validation, what="validation data", function=name)
    if config.xla is not None:
        model.jit_compile = config.xla
    return model


def _training_samples(model: keras.Model, data: UserData) -> int | None:
    """The training samples, read once where neither the data nor the model's step counts them."""
    known = data.samples()
    return data.count() if known is None and not counts_images(model) else known


def _arrays(data: UserData) -> tuple[Any, ...]:
    """The training arrays, as NumPy's; empty if the data are others."""
    if not data.has_arrays:
        return ()
    leaves = [leaf for leaf in keras.tree.flatten(data.training) if leaf is not None]
    arrays = [np.asarray(leaf) for leaf in leaves]
    return () if any(array.dtype == object for array in arrays) else tuple(arrays)
