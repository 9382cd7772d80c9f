"""`kdist tune`: parses and calls, no logic."""

from typing import Annotated

import typer

from ..cli_options import choices, was_given
from ..config import DATASETS, SCHEDULES, TrainConfig
from ..optimizer_choice import OPTIMIZERS
from ..precision import PRECISIONS
from ..recipes import read_settings
from ..scaling import RULES
from ..tracking.names import TRACKERS
from .objective import OBJECTIVES
from .search import TUNERS, Search, check_given

_DEFAULTS = TrainConfig()
_SEARCH = Search()
_SETTINGS = "Settings that are not tuned"


def tune(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            help="FILE.py:FUNCTION with a build(hp) of yours.",
            show_default="the WideResNet",
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="Function of that file that returns (x, y), (x_val, y_val).")
    ] = _SEARCH.data,
    tuner: Annotated[str, typer.Option(help=choices(TUNERS))] = _SEARCH.tuner,
    max_trials: Annotated[
        int | None,
        typer.Option(help="Trials at most.", show_default="10, hyperband all of its brackets"),
    ] = None,
    factor: Annotated[
        int, typer.Option(help="Hyperband keeps one trial in so many for the next round.")
    ] = _SEARCH.factor,
    objective: Annotated[str, typer.Option(help=choices(tuple(OBJECTIVES)))] = _SEARCH.objective,
    executions_per_trial: Annotated[
        int, typer.Option(help="Runs a trial, averaged.")
    ] = _SEARCH.executions_per_trial,
    max_failures: Annotated[
        int, typer.Option(help="Stop after so many failed trials in a row.")
    ] = _SEARCH.max_failures,
    per_trial: Annotated[
        int | None,
        typer.Option(
            help="Devices a trial: several trials at once.", show_default="all, one trial"
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            help="With --per-trial: devices in all; without a GPU the CPU is split.",
            show_default="every GPU",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="With --per-trial: the chief's.", show_default="a free one")
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(help="Search space, TOML or JSON.", show_default="one for the WideResNet"),
    ] = None,
    output: Annotated[
        str, typer.Option(help="Folder of the search; one begun in it is resumed.")
    ] = _SEARCH.output,
    config: Annotated[
        str | None,
        typer.Option(
            help="Settings file, TOML or JSON; options given here win.", rich_help_panel=_SETTINGS
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help=choices(DATASETS), rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.dataset,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder with the four Fashion-MNIST files.", rich_help_panel=_SETTINGS),
    ] = None,
    subset: Annotated[
        int | None,
        typer.Option(help="Train on the first so many images only.", rich_help_panel=_SETTINGS),
    ] = None,
    augment: Annotated[
        bool,
        typer.Option(
            help="Flip and shift the training images at random.", rich_help_panel=_SETTINGS
        ),
    ] = _DEFAULTS.augment,
    depth: Annotated[
        int, typer.Option(help="Layers of the network, 6n + 4.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.depth,
    width: Annotated[
        int, typer.Option(help="Its widening factor.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.width,
    replicas: Annotated[
        int | None,
        typer.Option(
            help="Of every trial; without a GPU the CPU is split.",
            show_default="every GPU",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples a batch and replica, which learning rates are drawn for.",
            rich_help_panel=_SETTINGS,
        ),
    ] = _DEFAULTS.batch_size,
    lr_rule: Annotated[
        str,
        typer.Option(
            help=f"How the rate follows batch and replicas. {choices(RULES)}",
            rich_help_panel=_SETTINGS,
        ),
    ] = _DEFAULTS.lr_rule,
    base_lr: Annotated[
        float, typer.Option(help="Learning rate for one replica.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.base_lr,
    optimizer: Annotated[
        str, typer.Option(help=choices(OPTIMIZERS), rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.optimizer,
    schedule: Annotated[
        str,
        typer.Option(
            help=f"Rate after the warm-up. {choices(SCHEDULES)}", rich_help_panel=_SETTINGS
        ),
    ] = _DEFAULTS.schedule,
    warmup_epochs: Annotated[
        float,
        typer.Option(help="Epochs over which the rate rises from 0.", rich_help_panel=_SETTINGS),
    ] = _DEFAULTS.warmup_epochs,
    precision: Annotated[
        str, typer.Option(help=choices(PRECISIONS), rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.precision,
    epochs: Annotated[
        int, typer.Option(help="Epochs of a trial, at most.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.epochs,
    target_accuracy: Annotated[
        float,
        typer.Option(
            help="For seconds_to_target: the accuracy to beat ...", rich_help_panel=_SETTINGS
        ),
    ] = _DEFAULTS.target_accuracy,
    patience: Annotated[
        int, typer.Option(help="... in so many epochs in a row.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.patience,
    time_budget: Annotated[
        float | None,
        typer.Option(
            help="Stop a trial once it has trained so many seconds.", rich_help_panel=_SETTINGS
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Trackers, a run a trial. {choices(TRACKERS)}",
            show_default="none",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the draws and of the trials.", rich_help_panel=_SETTINGS)
    ] = _DEFAULTS.seed,
) -> None:
    """Search for good hyperparameters; the same command again goes on where it was cut short."""
    options = {name: value for name, value in locals().items() if name in _DEFAULTS.to_dict()}
    given = {name: value for name, value in options.items() if was_given(context, name)}
    settings = {} if config is None else read_settings(config)
    search = Search(
        model=model,
        data=data,
        tuner=tuner,
        max_trials=max_trials,
        factor=factor,
        objective=objective,
        executions_per_trial=executions_per_trial,
        max_failures=max_failures,
        per_trial=per_trial,
        devices=devices,
        port=port,
        output=output,
        space=None if space is None else read_settings(space),
        config=TrainConfig.from_dict(settings | given),
    )
    check_given(search, given)
    from .run import tune as run

    try:
        run(search)
    except KeyboardInterrupt as error:
        typer.echo("Interrupted: the same command goes on.")
        raise typer.Exit(130) from error
