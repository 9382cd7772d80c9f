"""`kdist sweep`: parses and calls, no logic."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from ..data.datasets import MOST_IMAGES
from ..errors import UserError
from ..optimizers.scaling import RULES
from ..training.config import TrainConfig
from ..training.fields import field_names
from ..training.settings import FOLDERS, Batches, Checkpoints, Output, OwnModel, Stopping
from .integers import parse_integer
from .lists import parse_names, parse_whole_numbers
from .options import (
    ConfigFile,
    OwnModelName,
    Recipe,
    given,
    options_of,
    read_files,
    with_model,
)

app = App(
    name="sweep",
    help="Run experiments of many runs, with the uncertainty of their results."
    " Options of `kdist train` are passed to every run. An interrupted sweep resumes when the same"
    " command is run again.",
)

# A sweep's runs have folders of their own, and a fixed place for each file.
_OWN_FOLDERS = FOLDERS & field_names(Output)
_CHECKPOINTS = field_names(Checkpoints)
# Settings that have no effect on speed, or that the sweep decides.
_NOT_TIMED = (
    field_names(Batches, Stopping)
    | {"validate", "save_model", "model", "monitor"}
    | _OWN_FOLDERS
    | _CHECKPOINTS
)
_NOT_COMPARED = {
    "batch_size",
    "replicas",
    "seed",
    "lr_rule",
    "validate",
    "preemption_signal",
    *field_names(OwnModel),
} | _OWN_FOLDERS
# An accuracy sweep records these even if neither a file nor an option sets them.
_AIMS = ("target_accuracy", "patience", "epochs", "base_lr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of every sweep.

    Attributes:
        output: Folder of the sweep: an unfinished sweep in it resumes, a finished one is shown.
            `runs/sweep-<date>` by default.
        fresh: Start a new sweep, even if an unfinished one with these settings could resume.
        retry_failed: Run failed points again.
        workers: Numbers of workers, separated by commas: processes of this machine that train each
            point together.
    """

    output: str | None = None
    fresh: Annotated[bool, Parameter(negative=())] = False
    retry_failed: Annotated[bool, Parameter(negative=())] = False
    workers: str = "1"


_TIMED_OPTIONS = options_of(TrainConfig, without=_NOT_TIMED)
_ACCURACY_OPTIONS = options_of(TrainConfig, without=_NOT_COMPARED)

if TYPE_CHECKING:
    from typing import Any as AccuracyOptions
    from typing import Any as TimedOptions

    from ..sweep.experiment import ExperimentOrMaker
else:
    TimedOptions, AccuracyOptions = _TIMED_OPTIONS, _ACCURACY_OPTIONS

Sweep = Annotated[SweepOptions, Parameter(name="*", group=Group("Sweep", sort_key=-1))]
Timed = Annotated[TimedOptions, Parameter(name="*")]
BatchSizes = Annotated[str, Parameter(help="Training images per batch and replica.")]
Replicas = Annotated[str, Parameter(help="Numbers of replicas of a worker, separated by commas.")]
_MOST_ROUNDS = 1000  # each is a training of every setting
_MOST_EPOCHS = 1_000_000  # as of `kdist train`
Rounds = Annotated[
    int,
    Parameter(
        help="How often each point is run.",
        converter=parse_integer,
        validator=Number(gte=1, lte=_MOST_ROUNDS),
    ),
]
Epochs = Annotated[
    int,
    Parameter(
        help="Epochs of each run; the first is not timed.",
        converter=parse_integer,
        validator=Number(gte=2, lte=_MOST_EPOCHS),
    ),
]

_DEFAULTS = SweepOptions()
_TIMED = _TIMED_OPTIONS()
_COMPARED = _ACCURACY_OPTIONS()


@app.command
def throughput(
    model: OwnModelName = None,
    /,
    *,
    batch_sizes: BatchSizes = "8,16,32,64,128,256,512,700",
    replicas: Replicas = "1",
    epochs: Epochs = 3,
    rounds: Rounds = 3,
    sweep: Sweep = _DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Timed = _TIMED,
) -> int:
    """Measure images per second against the batch, and the batch that is large enough."""
    train = _train_settings(recipe, config, settings, decided=_NOT_TIMED, model=model)
    batches = parse_whole_numbers("--batch-sizes", batch_sizes)
    counts = parse_whole_numbers("--replicas", replicas)
    from ..sweep.throughput import ThroughputSweep

    experiment = ThroughputSweep(
        train=train,
        workers=parse_whole_numbers("--workers", sweep.workers),
        batch_sizes=batches,
        replicas=counts,
        epochs=epochs,
        rounds=rounds,
    )
    return _run(experiment, sweep)


@app.command
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
        Parameter(
            help="Runs of each setting; fewer than 7 give no upper end of the interval.",
            converter=parse_integer,
            validator=Number(gte=1, lte=_MOST_ROUNDS),
        ),
    ] = 7,
    base_batch: Annotated[
        int,
        Parameter(
            help="Global batch for which --base-lr was chosen.",
            converter=parse_integer,
            validator=Number(gte=1, lte=MOST_IMAGES),
        ),
    ] = 32,
    sweep: Sweep = _DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Annotated[AccuracyOptions, Parameter(name="*")] = _COMPARED,
) -> int:
    """Measure seconds and epochs to a target accuracy, including runs that never reach it."""
    train = _train_settings(recipe, config, settings, decided=_NOT_COMPARED)
    defaults = TrainConfig().to_dict()
    train = {name: defaults[name] for name in _AIMS} | train
    if train.get("time_budget", 0) is None:
        del train["time_budget"]
    base_lr = train.pop("base_lr")
    batches = parse_whole_numbers("--batch-sizes", batch_sizes)
    counts = parse_whole_numbers("--replicas", replicas)
    rules = parse_names("--lr-rules", lr_rules, RULES)
    from ..sweep.accuracy import AccuracySweep

    experiment = AccuracySweep(
        train=train,
        workers=parse_whole_numbers("--workers", sweep.workers),
        batch_sizes=batches,
        lr_rules=rules,
        replicas=counts,
        base_lr=base_lr,
        base_batch=base_batch,
        seeds=seeds,
    )
    return _run(experiment, sweep)


@app.command
def scaling(
    model: OwnModelName = None,
    /,
    *,
    replicas: Annotated[
        str | None,
        Parameter(help="Numbers of replicas of a worker; 1, 2, 4, ... every GPU by default."),
    ] = None,
    batch_size: Annotated[
        int,
        Parameter(
            help="Weak scaling: training images per batch and replica.",
            converter=parse_integer,
            validator=Number(gte=1, lte=MOST_IMAGES),
        ),
    ] = 64,
    global_batch: Annotated[
        int | None,
        Parameter(
            help="Strong scaling: training images per batch; by default --batch-size times the most"
            " replicas.",
            converter=parse_integer,
            validator=Number(gte=1, lte=MOST_IMAGES),
        ),
    ] = None,
    modes: Annotated[
        str, Parameter(help="weak: same batch per replica; strong: same global batch.")
    ] = "weak,strong",
    epochs: Epochs = 3,
    rounds: Rounds = 3,
    sweep: Sweep = _DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Timed = _TIMED,
) -> int:
    """Measure the efficiency of 1 to N replicas, and the time that collectives and input take."""
    train = _train_settings(recipe, config, settings, decided=_NOT_TIMED, model=model)
    asked = None if replicas is None else parse_whole_numbers("--replicas", replicas)
    from ..sweep.checks import check_experiment
    from ..sweep.machine import replica_counts
    from ..sweep.scaling import MODES, ScalingSweep

    workers = parse_whole_numbers("--workers", sweep.workers)
    chosen = parse_names("--modes", modes, MODES)
    if global_batch is not None and "strong" not in chosen:
        raise UserError(
            "received --global-batch, which does nothing without --modes strong: add that, or"
            " remove it"
        )

    def experiment(counts: list[int]) -> ScalingSweep:
        return ScalingSweep(
            train=train,
            workers=workers,
            batch_size=batch_size,
            global_batch=global_batch or batch_size * max(counts) * max(workers),
            replicas=counts,
            modes=chosen,
            epochs=epochs,
            rounds=rounds,
        )

    if asked is not None:
        return _run(experiment(asked), sweep)
    check_experiment(experiment([1]))  # here: how many GPUs there are takes seconds to ask
    return _run(lambda machine: experiment(replica_counts(machine, workers)), sweep)


def _train_settings(
    recipe: str | None,
    config: str | None,
    options: Any,
    *,
    decided: Collection[str],
    model: str | None = None,
) -> dict[str, Any]:
    """Settings of the sweep's runs: what a recipe, a file or an option gives, but what it decides.

    Raises:
        UserError: A setting is out of its range.
    """
    files = read_files(recipe, config)
    settings = {n: value for n, value in files.items() if n not in decided or n == "model"}
    settings |= given(options)
    settings = with_model(model, settings, given(options))
    checked = TrainConfig.from_dict(settings).to_dict()  # refuses what no run would take
    # Runs of a model of the user's find it from any folder.
    return settings | {n: checked[n] for n in ("model", "data") if n in settings}


def _run(experiment: "ExperimentOrMaker", options: SweepOptions) -> int:
    from ..sweep.run import sweep

    own = {name: value for name, value in vars(options).items() if name != "workers"}
    return sweep(experiment, **own)
