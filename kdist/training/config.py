"""Settings of a run as plain data (`TrainConfig`), and its batch sizes (`TrainPlan`)."""

import dataclasses
import difflib
import os
from collections.abc import Collection, Mapping
from typing import Any

from ..data.datasets import check_data_dir
from ..errors import UserError
from ..fields import check_fields, field_names
from ..optimizers.scaling import scale_learning_rate
from ..optimizers.table import check_momentum
from ..tracking.names import tracker_names
from .networks import NETWORKS, SPECIFIC
from .settings import (
    OF_THE_NETWORK,
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
from .user_model.functions import data_name, split_name

_DEFAULTS: dict[str, Any] = {
    name: getattr(group, name)
    for group in (Data, Model, Optimization, Stopping)
    for name in field_names(group)
}


def checked_own_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check settings that depend on whether the model is the user's.

    Args:
        settings: All settings of a run.

    Returns:
        The names of the model and the data with absolute paths, so that the run can be resumed and
        evaluated from any folder. Empty without a user's model.

    Raises:
        UserError: A setting does nothing, or a file does not exist.
    """
    model, data, monitor = settings["model"], settings["data"], settings["monitor"]
    if model is None:
        for name in sorted(field_names(OwnModel) - {"model"}):
            if settings[name] is not None:
                raise UserError(
                    f"received {name}={settings[name]}, which is for your own model: pass"
                    " FILE.py:FUNCTION, or remove it"
                )
        return {}
    given = [name for name in _DEFAULTS if settings[name] != _DEFAULTS[name]]
    refuse_with_own_model(model, given)
    if monitor is None:
        for name in ("target_accuracy", "patience"):
            if name in given:
                raise UserError(
                    f"{name}={settings[name]:g} does nothing with {model}, as nothing says which"
                    " metric to compare: pass monitor, such as val_accuracy, or remove it"
                )
    elif "loss" in monitor:
        raise UserError(
            f"monitor={monitor} falls as a model gets better, but target_accuracy is for a metric"
            " between 0 and 1 that rises: name a metric such as val_accuracy, or remove it"
        )
    elif monitor.startswith("val_") and not settings["validate"]:
        raise UserError(
            f"monitor={monitor} is of the validation that validate=False turns off: remove one of"
            " them, or monitor a metric of the training"
        )
    path, function = split_name(model)
    checked = {"model": f"{os.path.abspath(path)}:{function}"}
    if data is not None:
        data_path, data_function = data_name(model, data)
        if data != data_function:
            checked["data"] = f"{os.path.abspath(data_path)}:{data_function}"
    return checked


def refuse_with_own_model(model: str | None, given: Collection[str]) -> None:
    """Reject settings of `network` and its images for a model of the user's.

    Args:
        model: Name of the user's model, or `None`.
        given: Names of the settings that the user passed.

    Raises:
        UserError: `given` has a setting that the user's model decides.
    """
    decided = [name for name in given if name in OF_THE_NETWORK]
    if model is not None and decided:
        them = "it" if len(decided) == 1 else "them"
        raise UserError(
            f"received {', '.join(decided)}, which {model} decides itself: remove {them}, or write"
            f" {them} into its functions"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(
    Output, Checkpoints, Extras, Stopping, Execution, Optimization, Batches, OwnModel, Model, Data
):
    """Settings of one training run, from all groups in `kdist.training.settings`.

    The defaults are the settings of the course lab.

    Raises:
        UserError: A value is out of range; the message names the setting.

    Example:
        >>> TrainConfig(width=4, epochs=2).to_dict()["width"]
        4
    """

    def __post_init__(self) -> None:
        # Text, so that a settings file and a command line hold the same value.
        object.__setattr__(self, "track", ",".join(tracker_names(self.track)) or None)
        check_fields(self)
        for name, path in checked_own_model(self.to_dict()).items():
            object.__setattr__(self, name, path)
        if (self.depth - 4) % 6:
            near = 6 * round((self.depth - 4) / 6) + 4
            raise UserError(
                f"depth has to be 6n + 4 (10, 16, 22, 28, …), received {self.depth}: try {near}"
            )
        if self.shards is not None and self.replicas is not None and self.shards % self.replicas:
            raise UserError(
                f"received shards={self.shards} for {self.replicas} replicas, each of which has to"
                f" have equally many: pass a multiple of {self.replicas}"
            )
        check_momentum(self.optimizer, self.momentum)
        if self.warmup_epochs >= self.epochs:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} leaves none of epochs={self.epochs} to train"
                " at the full learning rate: lower it, or raise epochs"
            )
        self._check_unused()
        check_data_dir(self.dataset, self.data_dir)
        if self.preemption_signal is not None and self.checkpoint_every is None:
            raise UserError(
                f"preemption_signal={self.preemption_signal} does nothing without checkpoints: pass"
                " checkpoint_every, the seconds between two of them, or remove it"
            )

    def _check_unused(self) -> None:
        """Reject settings that have no effect in combination with other settings.

        Raises:
            UserError: A setting has no effect.
        """
        self._check_unused_by_network()
        self._check_unused_by_augmentation()
        if self.ema_warmup and self.ema_momentum is None:
            raise UserError(
                "ema_warmup=True does nothing without a moving average of the weights: pass"
                " ema_momentum, such as 0.999, or remove it"
            )
        if self.schedule == "exponential" and self.decay_epochs is None:
            raise UserError(
                "schedule=exponential needs decay_epochs, the epochs after which it multiplies the"
                f" learning rate by decay_rate={self.decay_rate:g}: pass decay_epochs"
            )
        if self.schedule != "exponential":
            given = f"decay_epochs={self.decay_epochs}"
            if self.decay_epochs is None:
                given = f"decay_rate={self.decay_rate:g}"
            if self.decay_epochs is not None or self.decay_rate != Optimization.decay_rate:
                raise UserError(
                    f"{given} does nothing with schedule={self.schedule}: remove it, or pass"
                    " schedule=exponential"
                )

    def _check_unused_by_network(self) -> None:
        for name in sorted(SPECIFIC - NETWORKS[self.network].settings):
            if getattr(self, name) != getattr(Model, name):
                suitable = [key for key, network in NETWORKS.items() if name in network.settings]
                raise UserError(
                    f"{name}={getattr(self, name)} does nothing with network={self.network}: remove"
                    f" it, or pass network={' or '.join(suitable)}"
                )

    def _check_unused_by_augmentation(self) -> None:
        if self.augmentation == "shift":
            return
        if not self.augment:
            raise UserError(
                f"augment=False turns off what augmentation={self.augmentation} asks for: remove"
                " one of them"
            )
        for name in ("shift", "whole_pixels"):
            if getattr(self, name) != getattr(Data, name):
                raise UserError(
                    f"{name}={getattr(self, name)} does nothing with"
                    f" augmentation={self.augmentation}: remove it, or pass augmentation=shift"
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

    def used(self) -> dict[str, Any]:
        """Return the settings that affect the run, without settings that its model decides."""
        unused = set(OF_THE_NETWORK) if self.model is not None else set(field_names(OwnModel))
        if self.model is not None and self.monitor is None:
            unused |= {"target_accuracy", "patience"}
        return {name: value for name, value in self.to_dict().items() if name not in unused}

    def shareable(self) -> dict[str, Any]:
        """Return the training settings that a dashboard may show: no paths."""
        return {name: value for name, value in self.used().items() if name in SHAREABLE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """The place of a run in a search.

    Attributes:
        epochs: Epochs after which the run pauses; `None` for all epochs of its settings. A schedule
            spans all epochs in both cases.
        has_target: Whether the target accuracy ends the run.
        group: The name of the search on a dashboard.
        run_name: The name of the trial on a dashboard.
        hyperparameters: The values that were drawn.
    """

    epochs: int | None
    has_target: bool
    group: str
    run_name: str
    hyperparameters: Mapping[str, Any]

    def tracked(self) -> dict[str, Any]:
        """Return the arguments for `kdist.tracking.tracking`."""
        return {
            "group": self.group,
            "run_name": self.run_name,
            "hyperparameters": self.hyperparameters,
        }


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

        Args:
            images: Number of training images.

        Example:
            >>> make_plan(TrainConfig(batch_size=16), replicas=2).steps_per_epoch(97)
            4
        """
        return -(-images // self.global_batch)


def make_plan(config: TrainConfig, *, replicas: int) -> TrainPlan:
    """Compute a run's batch sizes and learning rate.

    Args:
        config: The settings.
        replicas: Number of replicas.

    Example:
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


def resumed_plan(values: Mapping[str, Any], *, replicas: int) -> TrainPlan:
    """Return the plan of a resumed run: the saved batches and learning rate, for new replicas.

    Args:
        values: The saved plan as plain data.
        replicas: Number of replicas of the resumed run.

    Raises:
        UserError: The names in `values` are not the fields of a plan.

    Example:
        >>> plan = make_plan(TrainConfig(base_lr=0.01, batch_size=16), replicas=2)
        >>> resumed_plan(dataclasses.asdict(plan), replicas=3)
        TrainPlan(replicas=3, global_batch=32, validation_batch=64, learning_rate=0.02)
    """
    try:
        return TrainPlan(**{**values, "replicas": replicas})
    except TypeError as error:
        raise UserError(
            f"the run's plan has {', '.join(sorted(values)) or 'nothing'}: put back the plan.json"
            " that the run has written"
        ) from error
