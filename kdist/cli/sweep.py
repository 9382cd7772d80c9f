"""`kdist sweep`: a command for each kind of sweep."""

from collections.abc import Callable, Collection
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from ..fields import field_names
from ..study.experiment import Experiment
from ..study.sweep_kinds import AccuracySweep, ScalingSweep, ThroughputSweep
from ..training.config import TrainConfig
from ..training.settings import Batches, Checkpoints, OwnModel, Stopping
from .commands import end_study
from .options import (
    ConfigFile,
    OwnModelName,
    Recipe,
    add_options,
    given_options,
    make_options_class,
    read_settings,
)

# A sweep's runs have folders of their own, and a fixed place for each file.
_OWN_FOLDERS = {"run_dir", "log_dir"}
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
# Settings that a sweep of accuracies also records if they have their defaults.
_AIMS = ("target_accuracy", "patience", "epochs", "base_lr")


Output = Annotated[
    str | None,
    Parameter(
        help="Folder of the sweep; points in it that are done are not run again. By default a"
        " folder in `runs/` named after the settings.",
        group=Group("Sweep", sort_key=-1),
    ),
]


def _sweep_options(experiment: type[Experiment], *without: str) -> Any:
    return make_options_class(experiment, without={"train", *without}, group="Sweep")


_TIMED = make_options_class(TrainConfig, without=_NOT_TIMED)
_TRAINED = make_options_class(TrainConfig, without=_DECIDED)


def _make_timed_command(experiment: type[Experiment]) -> Callable[..., int]:
    """Return the command of a sweep that measures speed."""

    @add_options(own=_sweep_options(experiment), settings=_TIMED)
    def command(
        model: OwnModelName = None,
        /,
        *,
        own: Any = None,
        output: Output = None,
        config: ConfigFile = None,
        recipe: Recipe = None,
        settings: Any = None,
    ) -> int:
        train = _train_settings(recipe, config, settings, decided=_NOT_TIMED, model=model)
        return _run_sweep(experiment(train=train, **given_options(own)), output)

    return command


@add_options(own=_sweep_options(AccuracySweep, "base_lr"), settings=_TRAINED)
def accuracy(
    *,
    own: Any = None,
    output: Output = None,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Any = None,
) -> int:
    """Measure seconds and epochs to a target accuracy, including runs that never reach it."""
    train = _train_settings(recipe, config, settings, decided=_DECIDED)
    defaults = TrainConfig().to_dict()
    train = {name: defaults[name] for name in _AIMS} | train
    base_lr = train.pop("base_lr")
    return _run_sweep(AccuracySweep(train=train, base_lr=base_lr, **given_options(own)), output)


def _train_settings(
    recipe: str | None,
    config: str | None,
    options: Any,
    *,
    decided: Collection[str],
    model: str | None = None,
) -> dict[str, Any]:
    """Return the settings of the runs from a recipe, a file and options, without `decided`.

    Raises:
        UserError: A setting is out of its range.
    """
    settings = read_settings(recipe, config, options, model=model)
    settings = {n: value for n, value in settings.items() if n not in decided or n == "model"}
    checked = TrainConfig.from_dict(settings).to_dict()  # refuses invalid settings
    # Absolute paths: runs find the user's model from any folder.
    return settings | {n: checked[n] for n in ("model", "data") if n in settings}


def _run_sweep(experiment: Experiment, output: str | None) -> int:
    from ..study.sweep_run import sweep

    return end_study(sweep(experiment, output=output))


app = App(
    name="sweep",
    help="Run experiments that consist of many runs, and state the uncertainty of their results."
    " Options of `kdist train` are passed to every run. Run the same command again to resume an"
    " interrupted sweep.",
)
app.command(
    _make_timed_command(ThroughputSweep),
    name="throughput",
    help="Measure images per second by batch size.",
)
app.command(accuracy)
app.command(
    _make_timed_command(ScalingSweep),
    name="scaling",
    help="Measure the efficiency of 1 to N replicas.",
)
