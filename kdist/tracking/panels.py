"""Sections and panels of the W&B dashboard, as plain data."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines:
    """A line chart of values by epoch, one line per run.

    Attributes:
        title: The panel's title.
        values: Names of values in `logs`.
    """

    title: str
    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """A scatter plot of a value against a setting, one point per run.

    Attributes:
        title: The panel's title.
        setting: The setting on the x axis.
        value: Name of a value in `logs`; its last value is on the y axis.
    """

    title: str
    setting: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """Parallel coordinates of settings and the objective of a search, one line per trial.

    Attributes:
        title: The panel's title.
        settings: The settings.
        result: Name of the objective in the run's summary.
    """

    title: str
    settings: tuple[str, ...]
    result: str


Panel = Lines | Points | Trials

SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Learning": (
        Lines(title="Accuracy", values=("accuracy", "val_accuracy")),
        Lines(title="Loss", values=("loss", "val_loss")),
        Lines(title="Learning rate", values=("learning_rate",)),
    ),
    "Speed": (
        Lines(title="Images per second", values=("images_per_sec",)),
        Lines(title="Images per second and replica", values=("images_per_sec_per_replica",)),
        Lines(title="Seconds per step", values=("seconds_per_step",)),
        Points(title="Images per second by replicas", setting="replicas", value="images_per_sec"),
        Points(
            title="Images per second by global batch",
            setting="global_batch",
            value="images_per_sec",
        ),
    ),
    "Batch": (
        Lines(title="Gradient noise scale, images", values=("gradient_noise_scale",)),
        Lines(
            title="Batch norm: error of moving statistics",
            values=("batch_norm_gap", "batch_norm_replica_gap"),
        ),
        Lines(
            title="Loss in training and inference mode",
            values=("loss_in_training_mode", "loss_in_inference_mode"),
        ),
        Points(title="Accuracy by global batch", setting="global_batch", value="val_accuracy"),
    ),
    "Search": (
        Trials(
            title="Trials",
            settings=("base_lr", "batch_size", "optimizer", "dropout", "wd"),
            result="objective",
        ),
    ),
}
