"""Settings of a run as plain data (`TrainConfig`), and its batches and rate (`TrainPlan`)."""

import dataclasses
import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..data.dataset_choices import check_data_dir
from ..errors import UserError
from ..fields import check_fields, field_names
from ..optimizers.optimizer_choices import check_momentum
from ..optimizers.scaling import scale_learning_rate
from ..tracking.make_trackers import tracker_names
from .settings import (
    SET_BY_OWN_MODEL,
    SHAREABLE,
    Batches,
    Checkpoints,
    Data,
    Execution,
    Extras,
    Model,
    Optimization,
    Output,
    OwnModel,
    Stopping,
)
from .user_model.user_functions import split_data_name, split_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(
    Output, Checkpoints, Extras, Stopping, Execution, Optimization, Batches, OwnModel, Model, Data
):
    """Settings of one training run, from all groups in `kdist.training.settings`.

    The defaults are the settings of the course lab.

    Raises:
        UserError: A value is out of range; the message names the setting.

    Examples:
        >>> TrainConfig(width=4, epochs=2).to_dict()["width"]
        4
    """

    def __post_init__(self) -> None:
        # Text, so that a settings file and a command line hold the same value.
        object.__setattr__(self, "track", ",".join(tracker_names(self.track)) or None)
        check_fields(self)
        if self.model is None:
            self._refuse_unused(field_names(OwnModel), "model")
        else:
            self._check_own_model(self.model)
        if (self.depth - 4) % 6:
            near = 6 * round((self.depth - 4) / 6) + 4
            raise UserError(
                f"depth has to be 6n + 4 (10, 16, 22, 28, …), received {self.depth}: try {near}"
            )
        if self.shards is not None and self.replicas is not None and self.shards % self.replicas:
            raise UserError(
                f"received shards={self.shards} for {self.replicas} replicas, but every"
                f" replica needs the same number of shards: pass a multiple of {self.replicas}"
            )
        check_momentum(self.optimizer, self.momentum)
        if self.warmup_epochs >= self.epochs:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} leaves no epoch at the full learning rate"
                f" (epochs={self.epochs}): lower warmup_epochs, or raise epochs"
            )
        self._check_unused()
        check_data_dir(self.dataset, self.data_dir)

    def _check_own_model(self, model: str) -> None:
        """Check the settings of a user's model, and make the paths of its files absolute.

        The run can then be resumed and evaluated from any folder.
        """
        self._refuse_unused(SET_BY_OWN_MODEL, "model")
        if self.monitor is None:
            self._refuse_unused(("target_accuracy", "patience"), "monitor")
        elif "loss" in self.monitor:
            raise UserError(
                "target_accuracy needs a metric between 0 and 1 that rises, received"
                f" monitor={self.monitor}: name a metric such as val_accuracy"
            )
        elif self.monitor.startswith("val_") and not self.validate:
            raise UserError(
                f"monitor={self.monitor} needs validation, but validate=False turns it off: leave"
                " out validate=False, or pass a monitor without val_, such as accuracy"
            )
        path, function = split_name(model)
        object.__setattr__(self, "model", f"{os.path.abspath(path)}:{function}")
        if self.data is not None:
            path, function = split_data_name(model, self.data)
            if self.data != function:
                object.__setattr__(self, "data", f"{os.path.abspath(path)}:{function}")

    def _check_unused(self) -> None:
        """Reject settings that have no effect in combination with other settings."""
        if self.augmentation != "shift":
            self._refuse_unused(("shift", "whole_pixels"), "augmentation")
        if not self.augment:
            self._refuse_unused(("augmentation",), "augment")
        if self.schedule != "exponential":
            self._refuse_unused(("decay_epochs", "decay_rate"), "schedule")
        elif self.decay_epochs is None:
            raise UserError(
                "schedule=exponential needs decay_epochs, the epochs after which it multiplies the"
                f" learning rate by decay_rate={self.decay_rate:g}: pass decay_epochs"
            )
        if self.ema_momentum is None:
            self._refuse_unused(("ema_warmup",), "ema_momentum")
        if self.checkpoint_every is None:
            self._refuse_unused(("preemption_signal",), "checkpoint_every")

    def _refuse_unused(self, names: Iterable[str], by: str) -> None:
        """Reject settings that have no effect with the value of the setting `by`."""
        for name in sorted(names):
            value = getattr(self, name)
            if name != by and value != getattr(TrainConfig, name):
                given = f"{by}={getattr(self, by)}"
                if getattr(self, by) is None:
                    remedy = f"pass {by}"
                elif by == "model":
                    remedy = "leave out the model"
                else:
                    remedy = f"leave out {given}" if by == "augment" else f"pass another {by}"
                raise UserError(
                    f"{name}={value} has no effect if {given}: leave out {name}, or {remedy}"
                )

    @property
    def trackers(self) -> tuple[str, ...]:
        """The trackers requested by `track` and `log_dir`."""
        board = [] if self.log_dir is None else ["tensorboard"]
        return tracker_names([*tracker_names(self.track), *board])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """Make settings from the result of `to_dict`; an unknown name raises `UserError`."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            meant = [near for name in unknown for near in difflib.get_close_matches(name, known, 1)]
            raise UserError(
                f"unknown setting {', '.join(unknown)}: "
                + (f"did you mean {', '.join(meant)}? " if meant else "")
                + f"known are {', '.join(known)}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, ready for JSON."""
        return dataclasses.asdict(self)

    def used_settings(self) -> dict[str, Any]:
        """Return the settings that affect the run, without settings that its model decides."""
        unused = set(SET_BY_OWN_MODEL) if self.model is not None else set(field_names(OwnModel))
        if self.model is not None and self.monitor is None:
            unused |= {"target_accuracy", "patience"}
        return {name: value for name, value in self.to_dict().items() if name not in unused}

    def shareable_settings(self) -> dict[str, Any]:
        """Return the training settings that a dashboard may show: no paths."""
        return {name: value for name, value in self.used_settings().items() if name in SHAREABLE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """The place of a run in a search.

    Attributes:
        epochs: Epochs after which the run pauses; `None` for all epochs of its settings. A schedule
            spans all epochs in both cases.
        has_target: Whether the target accuracy ends the run.
        tracked: Arguments for `kdist.tracking.tracking`: `group`, `run_name` and `hyperparameters`.
    """

    epochs: int | None
    has_target: bool
    tracked: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """Batch sizes and learning rate of a run.

    Attributes:
        replicas: Number of replicas.
        global_batch: Training images per step, over all replicas.
        validation_batch: Validation images per step, over all replicas.
        learning_rate: Learning rate for the global batch.
    """

    replicas: int
    global_batch: int
    validation_batch: int
    learning_rate: float

    @property
    def batch_per_replica(self) -> int:
        """Largest number of training images per step on any replica."""
        return -(-self.global_batch // self.replicas)

    def steps_per_epoch(self, images: int) -> int:
        """Return the steps per epoch, including a smaller last batch.

        Examples:
            >>> make_plan(TrainConfig(batch_size=16), replicas=2).steps_per_epoch(97)
            4
        """
        return -(-images // self.global_batch)


def make_plan(config: TrainConfig, *, replicas: int) -> TrainPlan:
    """Compute a run's batch sizes and learning rate.

    Examples:
        >>> make_plan(TrainConfig(base_lr=0.01, batch_size=16), replicas=2)
        TrainPlan(replicas=2, global_batch=32, validation_batch=64, learning_rate=0.02)
    """
    return TrainPlan(
        replicas=replicas,
        global_batch=replicas * config.batch_size,
        validation_batch=replicas * config.val_batch_size,
        learning_rate=scale_learning_rate(
            config.base_lr, replicas=replicas, rule=config.lr_rule, optimizer=config.optimizer
        ),
    )


def make_resumed_plan(values: Mapping[str, Any], *, replicas: int) -> TrainPlan:
    """Return the plan of a resumed run: the saved batches and learning rate, for new replicas.

    Examples:
        >>> plan = make_plan(TrainConfig(base_lr=0.01, batch_size=16), replicas=2)
        >>> make_resumed_plan(dataclasses.asdict(plan), replicas=3)
        TrainPlan(replicas=3, global_batch=32, validation_batch=64, learning_rate=0.02)
    """
    return TrainPlan(**{**values, "replicas": replicas})
