"""`kdist sweep`: a command for each kind of sweep."""

from collections.abc import Callable, Collection
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from ..fields import field_names
from ..study.experiment import Experiment
from ..study.sweep_kinds import AccuracySweep, ScalingSweep, ThroughputSweep
from ..training.config import TrainConfig
from ..training.settings import Batches, Checkpoints, OwnModel, Stopping
from .options import (
    ConfigFile,
    OwnModelName,
    Recipe,
    add_options,
    given_options,
    make_options_class,
    read_settings,
)
from .small_commands import end_study

# A sweep chooses the folders of its runs.
_RUN_FOLDERS = {"run_dir", "log_dir"}
# Settings without effect on speed, and settings that a throughput or scaling sweep sets itself.
_NOT_IN_TIMED_SWEEPS = (
    {"model", "monitor", "validate", "save_model"}
    | field_names(Batches, Checkpoints, Stopping)
    | _RUN_FOLDERS
)
# Settings that an accuracy sweep sets itself.
_SET_BY_ACCURACY_SWEEP = (
    {"batch_size", "replicas", "seed", "lr_rule", "validate", "preemption_signal"}
    | field_names(OwnModel)
    | _RUN_FOLDERS
)
# Settings that an accuracy sweep writes to study.json even at their defaults.
_RECORDED_DEFAULTS = ("target_accuracy", "patience", "epochs", "base_lr")


Output = Annotated[
    str | None,
    Parameter(
        help="Folder of the sweep; finished points in the folder are not run again. By default"
        " runs/sweep-KIND-HASH, with a hash of the settings.",
        group=Group("Sweep", sort_key=-1),
    ),
]


def _sweep_options(experiment: type[Experiment], *without: str) -> Any:
    return make_options_class(experiment, without={"train", *without}, group="Sweep")


_TimedOptions = make_options_class(TrainConfig, without=_NOT_IN_TIMED_SWEEPS)
_TrainingOptions = make_options_class(TrainConfig, without=_SET_BY_ACCURACY_SWEEP)


def _make_timed_command(experiment: type[Experiment]) -> Callable[..., int]:
    """Return the command of a sweep that measures speed."""

    @add_options(own=_sweep_options(experiment), settings=_TimedOptions)
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
        train = _train_settings(
            recipe, config, settings, set_by_sweep=_NOT_IN_TIMED_SWEEPS, model=model
        )
        return _run_sweep(experiment(train=train, **given_options(own)), output)

    return command


@add_options(own=_sweep_options(AccuracySweep, "base_lr"), settings=_TrainingOptions)
def accuracy(
    *,
    own: Any = None,
    output: Output = None,
    config: ConfigFile = None,
    recipe: Recipe = None,
    settings: Any = None,
) -> int:
    """Measure seconds and epochs to a target accuracy, including runs that never reach it."""
    train = _train_settings(recipe, config, settings, set_by_sweep=_SET_BY_ACCURACY_SWEEP)
    defaults = TrainConfig().to_dict()
    train = {name: defaults[name] for name in _RECORDED_DEFAULTS} | train
    base_lr = train.pop("base_lr")
    return _run_sweep(AccuracySweep(train=train, base_lr=base_lr, **given_options(own)), output)


def _train_settings(
    recipe: str | None,
    config: str | None,
    options: Any,
    *,
    set_by_sweep: Collection[str],
    model: str | None = None,
) -> dict[str, Any]:
    """Return the settings of the runs from a recipe, a file and options.

    Settings in `set_by_sweep`, except the model, are left out: the sweep sets them itself.

    Raises:
        UserError: A setting is out of its range.
    """
    settings = read_settings(recipe, config, options, model=model)
    settings = {
        name: value
        for name, value in settings.items()
        if name not in set_by_sweep or name == "model"
    }
    checked = TrainConfig.from_dict(settings).to_dict()  # rejects invalid settings
    # `checked` has absolute paths, so that runs find the user's model from any folder.
    return settings | {name: checked[name] for name in ("model", "data") if name in settings}


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
    help="Measure the efficiency by number of replicas.",
)
