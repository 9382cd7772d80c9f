"""`TrainConfig`: everything that decides a training run, as plain data."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from .arguments import as_integer, as_real
from .errors import UserError
from .lab import LAB_EPOCHS
from .optimizer_choice import OPTIMIZERS, check_momentum
from .precision import PRECISIONS
from .scaling import RULES
from .tracking.names import check_options, first_and_last_step, tracker_names

DATASETS = ("fashion_mnist", "sample")
SCHEDULES = ("constant", "cosine", "linear", "lab")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of one run; the defaults are the course lab's.

    Attributes:
        dataset: `"fashion_mnist"` (the full set where it can be had, else the embedded sample) or
            `"sample"`.
        data_dir: Folder with the four Fashion-MNIST files, or `None` to look for them.
        subset: Train on the first `subset` images only (and test on at most as many).
        augment: Flip and shift the training images at random.
        shift: Longest of the shifts, as a part of height and width.
        whole_pixels: Shift by whole pixels, which does not blur: up to the whole number nearest to
            the longest shift.
        depth: Layers of the WideResNet, 6n + 4.
        width: Its widening factor.
        stem_pool: Halve the images after its first convolution already.
        dropout: Share of the values dropped inside each block.
        wd: Factor of the L2 penalty on every kernel; with AdamW, NovoGrad and LARS their weight
            decay instead.
        replicas: Replicas to train on; `None` takes every visible GPU, else the CPU.
        batch_size: Training images in a batch of one replica.
        val_batch_size: The same for validation.
        base_lr: Learning rate for one replica.
        lr_rule: How the learning rate follows the replicas: `"linear"`, `"sqrt"`, `"none"`, or
            `"auto"` for the optimizer's.
        optimizer: `"sgd"`, `"momentum"` (SGD with momentum 0.9), `"adam"`, `"adamw"`, `"novograd"`
            or `"lars"`.
        momentum: Nesterov momentum of SGD, or LARS's momentum; `None` takes the optimizer's.
        label_smoothing: Share of a label that is spread over all classes.
        ema_momentum: Validate and keep an exponential moving average of the weights with this
            momentum a step; `None` keeps the weights themselves.
        precision: `"float32"`, `"mixed_bfloat16"`, `"mixed_float16"` or `"tf32"`.
        xla: Compile the training step with XLA; one replica, or several GPUs. `None` does so on
            one GPU.
        schedule: Learning rate after the warm-up: `"constant"`, `"cosine"` or `"linear"` down to 0,
            or `"lab"`, a tenth of it from epoch 15, 25 and 35 on.
        warmup_epochs: Epochs over which the learning rate rises from 0.
        epochs: Epochs at most.
        target_accuracy: Stop once the validation accuracy beats this ...
        target_train_accuracy: ... and the training accuracy this, where it is given, ...
        patience: ... in so many epochs in a row.
        time_budget: Or once training has taken so many seconds, at the end of the epoch.
        seed: Of the weights, the dropout, the order of the images and their augmentation.
        validate: Validate after every epoch; without, no validation accuracy ends the run.
        noise_scale: Log the gradient noise scale of every epoch.
        save_model: Leave the trained model in the run folder.
        run_dir: Folder for the run's files; `None` makes a new one below `runs/`.
        log_dir: Folder for TensorBoard's files, which then is among the trackers.
        track: Trackers besides: `"wandb"`, `"tensorboard"`, `"csv"` (the run's own `history.csv`),
            several between commas or as a list; `None` or `"none"` for no other.
        track_batches: The trackers also get the metrics each time so many steps are trained.
        log_model: Keep the model of the best epoch as a W&B artifact.
        profile_batches: First and last training step to profile for TensorBoard, as `"10,20"`.

    Raises:
        UserError: A value out of its range; the message names the field.
    """

    dataset: str = "fashion_mnist"
    data_dir: str | None = None
    subset: int | None = None
    augment: bool = True
    shift: float = 0.2
    whole_pixels: bool = False
    depth: int = 16
    width: int = 10
    stem_pool: bool = False
    dropout: float = 0.01
    wd: float = 5e-6
    replicas: int | None = None
    batch_size: int = 32
    val_batch_size: int = 32
    base_lr: float = 0.01
    lr_rule: str = "linear"
    optimizer: str = "sgd"
    momentum: float | None = None
    label_smoothing: float = 0.0
    ema_momentum: float | None = None
    precision: str = "float32"
    xla: bool | None = None
    schedule: str = "constant"
    warmup_epochs: float = 0.0
    epochs: int = 40
    target_accuracy: float = 0.85
    target_train_accuracy: float | None = None
    patience: int = 2
    time_budget: float | None = None
    seed: int = 0
    validate: bool = True
    noise_scale: bool = False
    save_model: bool = True
    run_dir: str | None = None
    log_dir: str | None = None
    track: str | None = None
    track_batches: int | None = None
    log_model: bool = False
    profile_batches: str | None = None

    def __post_init__(self) -> None:
        for name in ("data_dir", "run_dir", "log_dir"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, str | os.PathLike):
                raise UserError(f"{name} is the path of a folder, received {path!r}")
            if path is not None:
                object.__setattr__(self, name, os.fspath(path))
        for name in (
            "augment",
            "whole_pixels",
            "validate",
            "noise_scale",
            "save_model",
            "log_model",
            "stem_pool",
        ):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name} is True or False, received {getattr(self, name)!r}")
        if self.xla is not None and not isinstance(self.xla, bool):
            raise UserError(f"xla is True, False or None, received {self.xla!r}")
        self._one_of("dataset", DATASETS)
        self._one_of("lr_rule", RULES)
        self._one_of("optimizer", OPTIMIZERS)
        self._one_of("schedule", SCHEDULES)
        self._one_of("precision", PRECISIONS)
        for name in ("width", "batch_size", "val_batch_size", "epochs", "patience"):
            self._whole(name, least=1)
        for name in ("replicas", "subset", "track_batches"):
            if getattr(self, name) is not None:
                self._whole(name, least=1)
        self._whole("seed", least=0, most=2**31 - 1)
        self._whole("depth", least=10)
        if (self.depth - 4) % 6:
            near = 6 * round((self.depth - 4) / 6) + 4
            raise UserError(
                f"depth is 6n + 4 (10, 16, 22, 28, …), received {self.depth}: try {near}"
            )
        self._number("base_lr", above=0)
        self._number("wd", least=0)
        self._number("warmup_epochs", least=0)
        self._number("dropout", least=0, below=1)
        self._number("shift", least=0, below=1)
        self._number("label_smoothing", least=0, below=1)
        for name in ("momentum", "ema_momentum"):
            if getattr(self, name) is not None:
                self._number(name, least=0, below=1)
        check_momentum(self.optimizer, self.momentum)
        self._number("target_accuracy", above=0, below=1)
        if self.target_train_accuracy is not None:
            self._number("target_train_accuracy", above=0, below=1)
        if self.time_budget is not None:
            self._number("time_budget", above=0)
        if self.warmup_epochs >= self.epochs:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} leaves none of epochs={self.epochs} to train"
                " at the full learning rate: lower it or raise epochs"
            )
        if self.schedule == "lab" and self.warmup_epochs >= LAB_EPOCHS[0]:
            raise UserError(
                f"warmup_epochs={self.warmup_epochs:g} reaches beyond epoch {LAB_EPOCHS[0]}, where"
                " schedule=lab first lowers the rate: lower it, or choose another schedule"
            )
        if self.dataset == "sample" and self.data_dir is not None:
            raise UserError(
                f"received dataset=sample and data_dir={self.data_dir}: the sample is embedded;"
                " leave data_dir out, or choose dataset=fashion_mnist"
            )

        steps = first_and_last_step(self.profile_batches)
        # As text, so that a settings file holds what a command line does.
        object.__setattr__(self, "track", ",".join(tracker_names(self.track)) or None)
        object.__setattr__(self, "profile_batches", steps and f"{steps[0]},{steps[1]}")
        check_options(
            self.trackers,
            track_batches=self.track_batches,
            log_model=self.log_model,
            profile_batches=self.profile_batches,
        )

    @property
    def trackers(self) -> tuple[str, ...]:
        """The trackers asked for, by `track` and by `log_dir`."""
        board = [] if self.log_dir is None else ["tensorboard"]
        return tracker_names([*tracker_names(self.track), *board])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """Read what `to_dict` gave; an unknown name is an error that lists the known ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UserError(f"unknown setting {', '.join(unknown)}: there are {', '.join(known)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data, ready for JSON."""
        return dataclasses.asdict(self)

    def _one_of(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise UserError(
                f"{name} is one of {', '.join(choices)}; received {getattr(self, name)}"
            )

    def _whole(self, name: str, *, least: int, most: int | None = None) -> None:
        value = as_integer(getattr(self, name))
        if value is None:
            raise UserError(f"{name} is a whole number, received {getattr(self, name)!r}")
        object.__setattr__(self, name, value)
        if value < least or (most is not None and value > most):
            bound = f"at least {least}" if most is None else f"from {least} to {most}"
            raise UserError(f"{name} is {bound}, received {value}")

    def _number(
        self,
        name: str,
        *,
        least: float = -math.inf,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> None:
        value = as_real(getattr(self, name))
        if value is None:
            raise UserError(f"{name} is a number, received {getattr(self, name)!r}")
        object.__setattr__(self, name, value)
        if not (least <= value and above < value < below and math.isfinite(value)):
            bounds = [f"at least {least:g}"] * (least > -math.inf)
            bounds += [f"above {above:g}"] * (above > -math.inf)
            bounds += [f"below {below:g}"] * (below < math.inf)
            bounds += ["finite"] * (below == math.inf)
            raise UserError(f"{name} is {' and '.join(bounds)}, received {value:g}")
