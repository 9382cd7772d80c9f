"""Convert the hyperparameters of a trial into the settings of a run."""

from collections.abc import Mapping
from typing import Any

from ..optimizers.scaling import scale_learning_rate
from ..training.config import TrainConfig


def trial_config(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a trial, with which `kdist train` can repeat it.

    Learning rates are drawn for one replica with the `batch_size` of `base`. They are scaled to the
    trial's own batch size by `lr_rule`, so that rate and batch size can be drawn independently: a
    rate that suits a batch of 32 is not tried unchanged with 256. The run itself scales the rate to
    the number of replicas.

    Args:
        base: The settings that are not tuned. Learning rates are drawn for its `batch_size`.
        values: Settings of the trial, from `SearchSpace.decode`.

    Raises:
        UserError: Settings are incompatible, such as Adam with a momentum.

    Example:
        >>> trial_config(TrainConfig(), {"base_lr": 0.01, "batch_size": 64}).base_lr
        0.02
    """
    config = TrainConfig.from_dict({**base.to_dict(), **values})
    rate = scale_learning_rate(
        config.base_lr,
        global_batch=config.batch_size,
        reference_batch=base.batch_size,
        rule=config.lr_rule,
        optimizer=config.optimizer,
    )
    return TrainConfig.from_dict({**config.to_dict(), "base_lr": rate})
