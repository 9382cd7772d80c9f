"""From the values of a trial to the settings of a run."""

from collections.abc import Mapping
from typing import Any

from ..config import TrainConfig
from ..scaling import scale_learning_rate


def trial_config(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """The settings with which a trial trains, and `kdist train` again.

    A learning rate is drawn for one replica with the batch of `base`. It follows the trial's own
    batch by `lr_rule`, so that the two can be drawn apart: a rate that is good with a batch of 32
    is not tried as it is with 256. The rule for the replicas comes after it, in the run.

    Args:
        base: The settings that are not tuned; `batch_size` is the one that rates are drawn for.
        values: Settings of the trial, as `SearchSpace.decode` gives them.

    Raises:
        UserError: Settings that do not go together, such as Adam with a momentum.

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
