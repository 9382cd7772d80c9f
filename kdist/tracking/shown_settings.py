"""Which settings of a run a dashboard is shown: those that decide the training."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..config import TrainConfig

# A setting that is added to `TrainConfig` is not shown before it is added here: paths tell a user's
# name and a company's, and a dashboard may be read by others.
SHOWN = (
    "dataset",
    "subset",
    "augment",
    "shift",
    "whole_pixels",
    "depth",
    "width",
    "stem_pool",
    "dropout",
    "wd",
    "replicas",
    "batch_size",
    "val_batch_size",
    "base_lr",
    "lr_rule",
    "optimizer",
    "momentum",
    "label_smoothing",
    "ema_momentum",
    "precision",
    "xla",
    "schedule",
    "warmup_epochs",
    "epochs",
    "target_accuracy",
    "target_train_accuracy",
    "patience",
    "time_budget",
    "seed",
)


def shown_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of `config` is shown.

    Of the settings of `TrainConfig`, those of `SHOWN`; other names are the caller's own, who has
    named what is to be seen.
    """
    settings = {field.name for field in dataclasses.fields(TrainConfig)}
    return {n: value for n, value in config.items() if n in SHOWN or n not in settings}
