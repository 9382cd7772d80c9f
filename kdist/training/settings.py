"""The settings of a run, in groups. A new setting needs a field and its help text here.

`cli/options.py` makes the command line's options, and `config.py` checks settings together.

The command line, settings files and `docs/reference/settings.md` are generated from these classes.
The first line of a class is its group's title in the help text. The group of a setting matters:

- A dashboard shows only settings of the groups in `SHAREABLE`, and no folders.
- Settings of `Output` may change when a run is repeated, and settings of `Checkpoints` when it is
  resumed.
- Settings of `Data`, `Model`, `Optimization` and `Execution` can be tuned, except for settings that
  `kdist/study/search_space.py` excludes.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from ..data.dataset_choices import MOST_IMAGES, DatasetName
from ..fields import Folder, LocalOrRemoteFolder, field_names, folder_names
from ..optimizers.optimizer_choices import OptimizerName
from ..optimizers.scaling import Rule
from ..optimizers.schedules import ScheduleName

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16", "tf32"]
# A limit for numbers of epochs, of steps between two lines, and of trials. A mistyped number is
# rejected before the import of TensorFlow, whose integers have 64 bits.
Count = Annotated[int, Ge(1), Le(1_000_000)]
# More GPUs than a machine has. The actual number is checked when a strategy is made.
Replicas = Annotated[int, Ge(1), Le(64)]
Shards = Annotated[int, Ge(1), Le(1024)]
BatchSize = Annotated[int, Ge(1), Le(MOST_IMAGES)]
# Wider than networks in the literature, and about as deep: width 14 in Zagoruyko & Komodakis 2016,
# 1,001 layers in He et al. 2016, "Identity Mappings". 16 layers of width 200 have 7 billion
# weights.
Depth = Annotated[int, Ge(10), Le(1000)]
Width = Annotated[int, Ge(1), Le(200)]
Fraction = Annotated[float, Ge(0), Lt(1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """Data.

    Attributes:
        dataset: Data set; `fashion_mnist` falls back to the embedded sample if unavailable, except
            in sweeps and searches.
        data_dir: Folder with the files of the data set: the four files of Fashion-MNIST, or
            the six files of CIFAR-10.
        subset: Train on the first images only, of this number, and test on at most as many.
        augment: Randomly change the training images.
        augmentation: How `augment` changes the training images, besides flips; `shift` shifts them
            by a fraction of their size; `crop` pads each edge with 4 reflected pixels, and crops at
            random; `cutout` crops likewise, and covers a square of 3/8 of height and width with the
            mean color.
        shift: Largest shift with `augmentation=shift`, as a fraction of height and width.
        whole_pixels: Shift by whole pixels (the largest shift is rounded), which does not blur.
    """

    dataset: DatasetName = "fashion_mnist"
    data_dir: Folder | None = None
    subset: Count | None = None
    augment: bool = True
    augmentation: Literal["shift", "crop", "cutout"] = "shift"
    shift: Fraction = 0.2
    whole_pixels: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """Model.

    Attributes:
        depth: Layers of the WideResNet, 6n + 4.
        width: Widening factor of the WideResNet.
        stem_pool: Halve the images' height and width after the first convolution of the WideResNet.
        dropout: Fraction of the activations to drop inside each block of the WideResNet.
        wd: Factor of the L2 penalty on every kernel; weight decay with `adamw`, `novograd` and
            `lars`.
    """

    depth: Depth = 16
    width: Width = 10
    stem_pool: bool = False
    dropout: Fraction = 0.01
    wd: Annotated[float, Ge(0)] = 5e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnModel:
    """Your own model.

    Attributes:
        model: `FILE.py:FUNCTION` that returns your compiled model, in place of WideResNet; on
            the command line an argument, not an option.
        data: Function in the model's file, or FILE.py:FUNCTION, that returns (x, y),
            (x_val, y_val), or batches; `data` by default.
        monitor: Metric for `target_accuracy` and `patience`, such as val_accuracy: a metric of your
            model between 0 and 1. Without `monitor`, no target stops the run.
    """

    model: str | None = None
    data: str | None = None
    monitor: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batches:
    """Replicas and batches.

    Attributes:
        replicas: Number of replicas; by default one per visible GPU, or one on the CPU. Without a
            GPU, a number above 1 splits the CPU into at most 8 replicas, or one per core if there
            are more than 8 cores.
        shards: Number of parts of each batch, a multiple of the number of replicas: with equal
            shards a run has the same bits on any number of replicas. The default, one part for each
            replica, is faster.
        shard_optimizer: Divide the optimizer's state over the replicas: each replica holds a part
            of the state instead of a copy.
        shard_weights: Divide the weights, too: a replica gathers weights shortly before it computes
            with them, and then frees them.
        batch_size: Training images per step and replica.
        val_batch_size: Validation images per step and replica.
    """

    replicas: Replicas | None = None
    shards: Shards | None = None
    shard_optimizer: bool = False
    shard_weights: bool = False
    batch_size: BatchSize = 32
    val_batch_size: BatchSize = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimization:
    """Optimization.

    Attributes:
        base_lr: Learning rate for one replica.
        lr_rule: How the learning rate scales with the replicas; `auto` uses the optimizer's rule.
        optimizer: Optimizer; `momentum` is SGD with momentum 0.9.
        momentum: Momentum (for SGD, Nesterov's); by default the optimizer's default; for `sgd`,
            `momentum` and `lars` only.
        label_smoothing: Fraction of each label to spread over all classes.
        ema_momentum: Momentum per step of a moving average of the weights; the average is validated
            and saved instead of the weights.
        ema_warmup: Begin with a small `ema_momentum`, at most (1 + steps) / (10 + steps), so that
            the average soon forgets the initial weights.
        schedule: Learning rate after the warm-up: constant, decaying to 0 (`cosine`, `linear`),
            or multiplied by `decay_rate` every `decay_epochs` epochs (`exponential`).
        decay_epochs: Epochs after which the schedule `exponential` lowers the learning rate.
        decay_rate: Factor by which the schedule `exponential` lowers the learning rate.
        warmup_epochs: Epochs over which the learning rate rises from 0.
    """

    base_lr: Annotated[float, Gt(0)] = 0.01
    lr_rule: Rule = "linear"
    optimizer: OptimizerName = "sgd"
    momentum: Fraction | None = None
    label_smoothing: Fraction = 0.0
    ema_momentum: Fraction | None = None
    ema_warmup: bool = False
    schedule: ScheduleName = "constant"
    decay_epochs: Annotated[float, Gt(0)] | None = None
    decay_rate: Annotated[float, Gt(0), Lt(1)] = 0.1
    warmup_epochs: Annotated[float, Ge(0)] = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Execution.

    Attributes:
        precision: Number format of the computation.
        xla: Compile the training step with XLA; by default only on a single GPU.
        seed: Seed of the weights, dropout, the order of the images and their augmentation.
    """

    precision: Precision = "float32"
    xla: bool | None = None
    seed: Annotated[int, Ge(0), Le(2**31 - 1)] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stopping:
    """Stopping.

    Attributes:
        epochs: Maximum number of epochs.
        target_accuracy: Stop once the validation accuracy is above this value.
        patience: Number of epochs in a row whose accuracy has to be above the target.
        time_budget: Stop at the end of the epoch in which training time exceeds this many seconds.
    """

    epochs: Count = 40
    target_accuracy: Annotated[float, Gt(0), Lt(1)] = 0.85
    patience: Count = 2
    time_budget: Annotated[float, Gt(0)] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """Besides training.

    Attributes:
        validate: Validate after every epoch; otherwise the target accuracy cannot stop the run.
        telemetry: Measure weights and gradients every this many steps: histograms for W&B and
            TensorBoard, norms for every epoch.
        save_model: Save the trained model in the run folder.
    """

    validate: bool = True
    telemetry: Count | None = None
    save_model: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Checkpoints.

    Attributes:
        checkpoint_every: Save a checkpoint in the run folder every this many seconds, so that
            `kdist train --resume` can continue a run that was killed; never by default.
        keep: Number of checkpoints to keep.
        preemption_signal: A signal besides SIGTERM after which the run saves a checkpoint and ends,
            such as the signal that Slurm's `--signal` sends before the time limit.
    """

    checkpoint_every: Annotated[float, Gt(0)] | None = None
    keep: Count = 3
    preemption_signal: Literal["SIGUSR1", "SIGUSR2"] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Output and tracking.

    Attributes:
        run_dir: New folder for the run's files; `runs/<date>` by default. The folder may be remote,
            such as `s3://bucket/run`.
        log_dir: Folder for TensorBoard's files; turns TensorBoard on.
        track: Trackers, separated by commas; any of `wandb`, `tensorboard` and `none`.
        track_batches: Also track the metrics within an epoch, every this many steps.
    """

    run_dir: LocalOrRemoteFolder | None = None
    log_dir: Folder | None = None
    track: str | None = None
    track_batches: Count | None = None


FOLDERS = folder_names(Data, Output)
SET_BY_OWN_MODEL = field_names(Data, Model, Optimization) - {"lr_rule"}
"""Settings of WideResNet and its images: a user's model sets these itself."""
SHAREABLE = field_names(Data, Model, Batches, Optimization, Execution, Stopping) - FOLDERS
"""Settings that a dashboard may show. Paths may contain the name of a user or a company, so
settings of all further groups stay private."""


def model_name(settings: Mapping[str, Any]) -> str:
    """Return the name of the WideResNet of these settings, or of the user's model.

    Args:
        settings: Settings as in `config.json`; missing settings have their defaults.

    Examples:
        >>> model_name({"depth": 10, "width": 1})
        'WRN-10-1'
        >>> model_name({"model": "/home/me/my_model.py:build"})
        'my_model:build'
    """
    if isinstance(settings.get("model"), str):
        path, _, function = settings["model"].rpartition(":")
        return f"{Path(path).stem}:{function}"
    depth, width = settings.get("depth", Model.depth), settings.get("width", Model.width)
    return f"WRN-{depth}-{width}"
