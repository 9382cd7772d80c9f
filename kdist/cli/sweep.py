"""`kdist sweep`: a command for each kind of sweep."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from cyclopts import App

from ..fields import field_names
from ..study.experiment import Experiment
from ..study.sweep_kinds import AccuracySweep, ScalingSweep, ThroughputSweep
from ..training.config import TrainConfig
from ..training.settings import FOLDERS, Batches, Checkpoints, Output, OwnModel, Stopping
from .commands import end_study
from .options import ConfigFile, OwnModelName, Recipe, given, options_of, read_settings, takes

# A sweep's runs have folders of their own, and a fixed place for each file.
_OWN_FOLDERS = FOLDERS & field_names(Output)
# Settings without effect on speed, and settings that a sweep of speeds decides.
_NOT_TIMED = (
    {"model", "monitor", "validate", "save_model"}
    | field_names(Batches, Checkpoints, Stopping)
    | _OWN_FOLDERS
)
# Settings that a sweep of accuracies decides.
_DECIDED = (
    {"batch_size", "replicas", "seed", "lr_rule", "validate", "preemption_signal"}
    | field_names(OwnModel)
    | _OWN_FOLDERS
)
# Settings of its runs that a sweep of accuracies records even where they have their defaults.
_AIMS = ("target_accuracy", "patience", "epochs", "base_lr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """The folder of a sweep.

    Attributes:
        output: Folder of the sweep; an unfinished sweep in it is resumed, a finished one is shown.
            By default a folder in `runs/` named after the settings.
        retry_failed: Run failed points again.
    """

    output: str | None = None
    retry_failed: bool = False


def _own(experiment: type[Experiment], *without: str) -> Any:
    return options_of(experiment, without={"train", *without}, group="Sweep")


_FOLDER = options_of(SweepFolder, group="Sweep")
_TIMED = options_of(TrainConfig, without=_NOT_TIMED)
_TRAINED = options_of(TrainConfig, without=_DECIDED)


def _timed(experiment: type[Experiment]) -> Callable[..., int]:
    """Return the command of a sweep that measures speed."""

    @takes(own=_own(experiment), folder=_FOLDER, settings=_TIMED)
    def command(
        model: OwnModelName = None,
        /,
        *,
        own: Any = None,
        folder: Any = None,
        config: ConfigFile = None,
        recipe: Recipe = None,
        settings: Any = None,
    ) -> int:
        train = _train_settings(recipe, config, settings, decided=_NOT_TIMED, model=model)
        return _sweep(experiment(train=train, **given(own)), folder)

    return command


@takes(own=_own(AccuracySweep, "base_lr"), folder=_FOLDER, settings=_TRAINED)
def accuracy(
    *,
    own: Any = None,
    folder: Any = None,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Any = None,
) -> int:
    """Measure seconds and epochs to a target accuracy, including runs that never reach it."""
    train = _train_settings(recipe, config, settings, decided=_DECIDED)
    defaults = TrainConfig().to_dict()
    train = {name: defaults[name] for name in _AIMS} | train
    if train.get("time_budget", 0) is None:
        del train["time_budget"]
    base_lr = train.pop("base_lr")
    return _sweep(AccuracySweep(train=train, base_lr=base_lr, **given(own)), folder)


def _train_settings(
    recipe: str | None,
    config: str | None,
    options: Any,
    *,
    decided: Collection[str],
    model: str | None = None,
) -> dict[str, Any]:
    """Return the settings of the runs from a recipe, a file and options, but for decided ones.

    Raises:
        UserError: A setting is out of its range.
    """
    settings = read_settings(recipe, config, options, model=model)
    settings = {n: value for n, value in settings.items() if n not in decided or n == "model"}
    checked = TrainConfig.from_dict(settings).to_dict()  # refuses invalid settings
    # Runs of a model of the user's find it from any folder.
    return settings | {n: checked[n] for n in ("model", "data") if n in settings}


def _sweep(experiment: Experiment, folder: Any) -> int:
    from ..study.sweep_run import sweep

    return end_study(sweep(experiment, **given(folder)))


app = App(
    name="sweep",
    help="Run experiments that consist of many runs, and state the uncertainty of their results."
    " Options of `kdist train` are passed to every run. Run the same command again to resume an"
    " interrupted sweep.",
)
app.command(
    _timed(ThroughputSweep),
    name="throughput",
    help="Measure images per second by batch size.",
)
app.command(accuracy)
app.command(_timed(ScalingSweep), name="scaling", help="Measure the efficiency of 1 to N replicas.")
