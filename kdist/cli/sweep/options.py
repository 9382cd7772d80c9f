"""What the commands of all kinds of sweeps share: options, and the settings of a sweep's runs."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from ...training.config import TrainConfig
from ...training.fields import NotTimed, field_names, marked
from ...training.settings import FOLDERS, Batches, Checkpoints, Output, Stopping
from ..integers import parse_integer
from ..lists import parse_whole_numbers
from ..options import given, options_of, read_files, with_model

if TYPE_CHECKING:
    from typing import Any as TimedOptions

    from ...sweep.experiment import ExperimentOrMaker

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
    from ...sweep.run import sweep

    own = {name: value for name, value in vars(options).items() if name != "workers"}
    return sweep(experiment, **own)
