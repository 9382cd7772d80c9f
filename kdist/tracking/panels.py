"""What the W&B dashboard shows, as plain data: sections of panels, over what `tracking` writes."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines:
    """Values of each epoch, a line a run.

    Attributes:
        title: What stands above.
        values: Names as in `logs`.
    """

    title: str
    values: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """One value against another, a point a run.

    Attributes:
        title: What stands above.
        setting: The run's setting across.
        value: The last value of it in `logs`, upwards.
    """

    title: str
    setting: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Settings beside the value that a search is for, a line a trial.

    Attributes:
        title: What stands above.
        settings: The settings.
        result: The value in the run's summary.
    """

    title: str
    settings: tuple[str, ...]
    result: str


Panel = Lines | Points | Search

SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Learning": (
        Lines(title="Accuracy", values=("accuracy", "val_accuracy")),
        Lines(title="Loss", values=("loss", "val_loss")),
        Lines(title="Learning rate", values=("learning_rate",)),
    ),
    "Speed": (
        Lines(title="Images a second", values=("images_per_sec",)),
        Lines(title="Images a second and replica", values=("images_per_sec_per_replica",)),
        Lines(title="Seconds a step", values=("seconds_per_step",)),
        Points(title="Images a second by replicas", setting="replicas", value="images_per_sec"),
        Points(
            title="Images a second by global batch", setting="global_batch", value="images_per_sec"
        ),
    ),
    "Batch": (
        Lines(title="Gradient noise scale, images", values=("gradient_noise_scale",)),
        Lines(
            title="Batch norm: how far moving statistics are off",
            values=("batch_norm_gap", "batch_norm_replica_gap"),
        ),
        Lines(
            title="Loss in training and inference mode",
            values=("loss_in_training_mode", "loss_in_inference_mode"),
        ),
        Points(title="Accuracy by global batch", setting="global_batch", value="val_accuracy"),
    ),
    "Search": (
        Search(
            title="Trials",
            settings=("base_lr", "batch_size", "optimizer", "dropout", "wd"),
            result="objective",
        ),
    ),
}
