"""`kdist sweep accuracy`: parses and calls, no logic."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ...data.datasets import MOST_IMAGES
from ...optimizers.scaling import RULES
from ...training.config import TrainConfig
from ...training.fields import field_names
from ...training.settings import OwnModel
from ..lists import parse_names, parse_whole_numbers
from ..options import ConfigFile, Recipe, options_of
from .options import (
    DEFAULTS,
    MOST_ROUNDS,
    OWN_FOLDERS,
    BatchSizes,
    Replicas,
    Sweep,
    integer,
    run_sweep,
    train_settings,
)

# Settings that the sweep decides.
_DECIDED = (
    {"batch_size", "replicas", "seed", "lr_rule", "validate", "preemption_signal"}
    | field_names(OwnModel)
    | OWN_FOLDERS
)
# The sweep records these even if neither a file nor an option sets them.
_AIMS = ("target_accuracy", "patience", "epochs", "base_lr")

_OPTIONS = options_of(TrainConfig, without=_DECIDED)

if TYPE_CHECKING:
    from typing import Any as AccuracyOptions
else:
    AccuracyOptions = _OPTIONS

_NONE_GIVEN = _OPTIONS()


def accuracy(
    *,
    batch_sizes: BatchSizes = "32,64,128,256,512",
    lr_rules: Annotated[
        str,
        Parameter(
            help="Rules that scale the learning rate with the global batch, separated by commas:"
            f" {', '.join(RULES)}."
        ),
    ] = "linear",
    replicas: Replicas = "1",
    seeds: Annotated[
        int,
        integer(
            "Runs per setting; with fewer than 7, the interval has no upper end.",
            most=MOST_ROUNDS,
        ),
    ] = 7,
    base_batch: Annotated[
        int, integer("Global batch for which --base-lr was chosen.", most=MOST_IMAGES)
    ] = 32,
    sweep: Sweep = DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Annotated[AccuracyOptions, Parameter(name="*")] = _NONE_GIVEN,
) -> int:
    """Measure seconds and epochs to a target accuracy, including runs that never reach it."""
    train = train_settings(recipe, config, settings, decided=_DECIDED)
    defaults = TrainConfig().to_dict()
    train = {name: defaults[name] for name in _AIMS} | train
    if train.get("time_budget", 0) is None:
        del train["time_budget"]
    base_lr = train.pop("base_lr")
    batches = parse_whole_numbers("--batch-sizes", batch_sizes)
    counts = parse_whole_numbers("--replicas", replicas)
    rules = parse_names("--lr-rules", lr_rules, RULES)
    from ...sweep.accuracy import AccuracySweep

    experiment = AccuracySweep(
        train=train,
        workers=sweep.worker_counts(),
        batch_sizes=batches,
        lr_rules=rules,
        replicas=counts,
        base_lr=base_lr,
        base_batch=base_batch,
        seeds=seeds,
    )
    return run_sweep(experiment, sweep)
