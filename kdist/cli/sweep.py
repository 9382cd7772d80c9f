"""`kdist sweep`: a command for each kind of sweep."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from ..data.datasets import MOST_IMAGES
from ..errors import UserError
from ..optimizers.scaling import RULES
from ..training.config import TrainConfig
from ..training.fields import NotTimed, field_names, marked
from ..training.settings import FOLDERS, Batches, Checkpoints, Output, OwnModel, Stopping
from ..versions import require
from .options import (
    ConfigFile,
    OwnModelName,
    Recipe,
    given,
    options_of,
    parse_integer,
    parse_names,
    parse_whole_numbers,
    read_files,
    with_model,
)

if TYPE_CHECKING:
    from typing import Any as TimedOptions

    from ..study.experiments import ExperimentOrMaker

# A sweep's runs have folders of their own, and a fixed place for each file.
OWN_FOLDERS = FOLDERS & field_names(Output)
# Settings that have no effect on speed, or that a sweep which measures it decides.
NOT_TIMED = (
    field_names(Batches, Checkpoints, Stopping)
    | frozenset(marked(TrainConfig, NotTimed))
    | OWN_FOLDERS
)
MOST_ROUNDS = 1000  # each is a training of every setting
_MOST_EPOCHS = 1_000_000  # as of `kdist train`


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of every sweep.

    Attributes:
        output: Folder of the sweep; an unfinished sweep in it is resumed, a finished one is shown.
            `runs/sweep-<date>` by default.
        fresh: Start a new sweep, even if an unfinished one with these settings could be resumed.
        retry_failed: Run failed points again.
        workers: Numbers of workers, separated by commas; workers are processes of this machine that
            train each point together.
    """

    output: str | None = None
    fresh: Annotated[bool, Parameter(negative=())] = False
    retry_failed: Annotated[bool, Parameter(negative=())] = False
    workers: str = "1"

    def worker_counts(self) -> list[int]:
        """Return the numbers of workers.

        Raises:
            UserError: They are no numbers.
        """
        return parse_whole_numbers("--workers", self.workers)


def integer(text: str, *, least: int = 1, most: int) -> Parameter:
    """Make an option that takes an integer, with its help text and bounds."""
    return Parameter(help=text, converter=parse_integer, validator=Number(gte=least, lte=most))


_TIMED_OPTIONS = options_of(TrainConfig, without=NOT_TIMED)
if not TYPE_CHECKING:
    TimedOptions = _TIMED_OPTIONS

Sweep = Annotated[SweepOptions, Parameter(name="*", group=Group("Sweep", sort_key=-1))]
Timed = Annotated[TimedOptions, Parameter(name="*")]
BatchSizes = Annotated[str, Parameter(help="Training images per batch and replica.")]
Replicas = Annotated[str, Parameter(help="Numbers of replicas per worker, separated by commas.")]
Rounds = Annotated[int, integer("How often to run each point.", most=MOST_ROUNDS)]
Epochs = Annotated[
    int, integer("Epochs of each run; the first is not timed.", least=2, most=_MOST_EPOCHS)
]

DEFAULTS = SweepOptions()
TIMED = _TIMED_OPTIONS()


def train_settings(
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


def run_sweep(experiment: "ExperimentOrMaker", options: SweepOptions) -> int:
    """Run a sweep, and return its exit code."""
    require("report")
    from ..study.grid import sweep

    own = {name: value for name, value in vars(options).items() if name != "workers"}
    return sweep(experiment, **own)


def throughput(
    model: OwnModelName = None,
    /,
    *,
    batch_sizes: BatchSizes = "8,16,32,64,128,256,512,700",
    replicas: Replicas = "1",
    epochs: Epochs = 3,
    rounds: Rounds = 3,
    sweep: Sweep = DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Timed = TIMED,
) -> int:
    """Measure images per second by batch size, and find the batch size that is large enough."""
    train = train_settings(recipe, config, settings, decided=NOT_TIMED, model=model)
    batches = parse_whole_numbers("--batch-sizes", batch_sizes)
    counts = parse_whole_numbers("--replicas", replicas)
    from ..study.kinds import ThroughputSweep

    experiment = ThroughputSweep(
        train=train,
        workers=sweep.worker_counts(),
        batch_sizes=batches,
        replicas=counts,
        epochs=epochs,
        rounds=rounds,
    )
    return run_sweep(experiment, sweep)


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
    from ..study.kinds import AccuracySweep

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


def scaling(
    model: OwnModelName = None,
    /,
    *,
    replicas: Annotated[
        str | None,
        Parameter(help="Numbers of replicas per worker; by default 1, 2, 4, ... up to every GPU."),
    ] = None,
    batch_size: Annotated[
        int,
        integer("Weak scaling: training images per batch and replica.", most=MOST_IMAGES),
    ] = 64,
    global_batch: Annotated[
        int | None,
        integer(
            "Strong scaling: training images per global batch; by default --batch-size times the"
            " largest number of replicas.",
            most=MOST_IMAGES,
        ),
    ] = None,
    modes: Annotated[
        str, Parameter(help="weak: same batch per replica; strong: same global batch.")
    ] = "weak,strong",
    epochs: Epochs = 3,
    rounds: Rounds = 3,
    sweep: Sweep = DEFAULTS,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Timed = TIMED,
) -> int:
    """Measure the efficiency of 1 to N replicas."""
    train = train_settings(recipe, config, settings, decided=NOT_TIMED, model=model)
    asked = None if replicas is None else parse_whole_numbers("--replicas", replicas)
    from ..study.experiments import replica_counts
    from ..study.grid import check_experiment
    from ..study.kinds import MODES, ScalingSweep

    workers = sweep.worker_counts()
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
        return run_sweep(experiment(asked), sweep)
    check_experiment(experiment([1]))  # here: how many GPUs there are takes seconds to ask
    return run_sweep(lambda machine: experiment(replica_counts(machine, workers)), sweep)


app = App(
    name="sweep",
    help="Run experiments that consist of many runs, and state the uncertainty of their results."
    " Options of `kdist train` are passed to every run. Run the same command again to resume an"
    " interrupted sweep.",
)
for command in (throughput, accuracy, scaling):
    app.command(command)
