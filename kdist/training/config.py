"""`TrainConfig`: all settings of a training run, as plain data."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from ..data.datasets import check_data_dir
from ..errors import UserError
from ..optimizers.schedules import LAB_EPOCHS
from ..optimizers.table import check_momentum
from ..tracking.factory import check_options, first_and_last_step, tracker_names
from .fields import check_fields, field_names
from .networks import NETWORKS, SPECIFIC
from .own_model_settings import checked_own_model
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(
    Output, Checkpoints, Extras, Stopping, Execution, Optimization, Batches, OwnModel, Model, Data
):
    """Settings of one training run, from all groups in `kdist.training.settings`.

    The defaults are those of the course lab.

    Raises:
        UserError: A value is out of range; the message names the setting.

    Example:
        >>> TrainConfig(width=4, epochs=2).to_dict()["width"]
        4
    """

    def __post_init__(self) -> None:
        # As text, so that a settings file holds what a command line does.
        steps = first_and_last_step(self.profile_batches)
        object.__setattr__(self, "track", ",".join(tracker_names(self.track)) or None)
        object.__setattr__(self, "profile_batches", steps and f"{steps[0]},{steps[1]}")
        check_fields(self)
        for name, path in checked_own_model(self.to_dict()).items():
            object.__setattr__(self, name, path)
        if (self.depth - 4) % 6:
            near = 6 * round((self.depth - 4) / 6) + 4
            raise UserError(
                f"depth has to be 6n + 4 (10, 16, 22, 28, …), received {self.depth}: try {near}"
            )
        check_momentum(self.optimizer, self.momentum)
        if self.warmup_epochs >= self.epochs:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} leaves none of epochs={self.epochs} to train"
                " at the full learning rate: lower it, or raise epochs"
            )
        if self.schedule == "lab" and self.warmup_epochs >= LAB_EPOCHS[0]:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} reaches beyond epoch {LAB_EPOCHS[0]}, where"
                " schedule=lab first lowers the rate: lower it, or choose another schedule"
            )
        self._check_idle()
        check_data_dir(self.dataset, self.data_dir)
        if self.preemption_signal is not None and self.checkpoint_every is None:
            raise UserError(
                f"preemption_signal={self.preemption_signal} does nothing without checkpoints: pass"
                " checkpoint_every, the seconds between two of them, or remove it"
            )
        check_options(
            self.trackers,
            track_batches=self.track_batches,
            log_model=self.log_model,
            profile_batches=self.profile_batches,
        )

    def _check_idle(self) -> None:
        """Reject settings that do nothing beside others.

        Raises:
            UserError: There is one.
        """
        self._check_idle_of_network()
        self._check_idle_of_augmentation()
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

    def _check_idle_of_network(self) -> None:
        for name in sorted(SPECIFIC - NETWORKS[self.network].settings):
            if getattr(self, name) != getattr(Model, name):
                suitable = [key for key, one in NETWORKS.items() if name in one.settings]
                raise UserError(
                    f"{name}={getattr(self, name)} does nothing with network={self.network}: remove"
                    f" it, or pass network={' or '.join(suitable)}"
                )

    def _check_idle_of_augmentation(self) -> None:
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
        """Return the settings that the run depends on, without those that its model decides."""
        unused = set(OF_THE_NETWORK) if self.model is not None else set(field_names(OwnModel))
        if self.model is not None and self.monitor is None:
            unused |= {"target_accuracy", "patience"}
        return {name: value for name, value in self.to_dict().items() if name not in unused}

    def shareable(self) -> dict[str, Any]:
        """Return the settings that a dashboard may show: those of training, without paths."""
        return {name: value for name, value in self.used().items() if name in SHAREABLE}
