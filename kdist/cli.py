"""The `kdist` command: parses and calls, no logic."""

import os
import sys
from typing import Annotated

import typer

from .bench.cli import bench
from .cli_options import choices, was_given
from .config import DATASETS, SCHEDULES, TrainConfig
from .errors import UserError
from .optimizer_choice import OPTIMIZERS
from .precision import PRECISIONS
from .recipes import read_recipe, read_settings, recipe_names
from .scaling import RULES
from .sweep.cli import app as sweep_app
from .tracking.names import TRACKERS
from .tuning.cli import tune

app = typer.Typer(
    name="kdist",
    help="Multi-GPU training for Keras: the same model on any number of replicas, only sooner.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(sweep_app)
app.command()(tune)
app.command()(bench)

_DEFAULTS = TrainConfig()


@app.command()
def train(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Option(help="Settings file, TOML or JSON; options given here win.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help=f"Settings that come with kdist. {choices(recipe_names())}")
    ] = None,
    dataset: Annotated[str, typer.Option(help=choices(DATASETS))] = _DEFAULTS.dataset,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder with the four Fashion-MNIST files.")
    ] = None,
    subset: Annotated[
        int | None, typer.Option(help="Train on the first so many images only.")
    ] = None,
    augment: Annotated[
        bool, typer.Option(help="Flip and shift the training images at random.")
    ] = _DEFAULTS.augment,
    shift: Annotated[
        float, typer.Option(help="Longest shift, as a part of height and width.")
    ] = _DEFAULTS.shift,
    whole_pixels: Annotated[
        bool,
        typer.Option(
            "--whole-pixels",
            help="Shift by whole pixels (the longest shift rounded), which does not blur.",
        ),
    ] = _DEFAULTS.whole_pixels,
    depth: Annotated[int, typer.Option(help="Layers of the network, 6n + 4.")] = _DEFAULTS.depth,
    width: Annotated[int, typer.Option(help="Its widening factor.")] = _DEFAULTS.width,
    stem_pool: Annotated[
        bool, typer.Option("--stem-pool", help="Halve the images after its first convolution.")
    ] = _DEFAULTS.stem_pool,
    dropout: Annotated[
        float, typer.Option(help="Share of the values dropped inside each block.")
    ] = _DEFAULTS.dropout,
    wd: Annotated[
        float, typer.Option(help="L2 penalty on every kernel, or the optimizer's weight decay.")
    ] = _DEFAULTS.wd,
    replicas: Annotated[
        int | None,
        typer.Option(help="Without a GPU the CPU is split.", show_default="every GPU"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(help="Training images a batch and replica.")
    ] = _DEFAULTS.batch_size,
    val_batch_size: Annotated[
        int, typer.Option(help="Validation images a batch and replica.")
    ] = _DEFAULTS.val_batch_size,
    base_lr: Annotated[
        float, typer.Option(help="Learning rate for one replica.")
    ] = _DEFAULTS.base_lr,
    lr_rule: Annotated[
        str, typer.Option(help=f"How the rate follows the replicas. {choices(RULES)}")
    ] = _DEFAULTS.lr_rule,
    optimizer: Annotated[str, typer.Option(help=choices(OPTIMIZERS))] = _DEFAULTS.optimizer,
    momentum: Annotated[
        float | None,
        typer.Option(help="Of SGD (Nesterov) and LARS.", show_default="0 for sgd, else 0.9"),
    ] = None,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of a label that is spread over all classes.")
    ] = _DEFAULTS.label_smoothing,
    ema_momentum: Annotated[
        float | None,
        typer.Option(help="Keep an average of the weights, with this momentum a step."),
    ] = None,
    precision: Annotated[str, typer.Option(help=choices(PRECISIONS))] = _DEFAULTS.precision,
    xla: Annotated[
        bool | None,
        typer.Option(
            "--xla/--no-xla",
            help="Compile the step: one replica, or several GPUs.",
            show_default="on one GPU only",
        ),
    ] = None,
    schedule: Annotated[
        str, typer.Option(help=f"Rate after the warm-up. {choices(SCHEDULES)}")
    ] = _DEFAULTS.schedule,
    warmup_epochs: Annotated[
        float, typer.Option(help="Epochs over which the rate rises from 0.")
    ] = _DEFAULTS.warmup_epochs,
    epochs: Annotated[int, typer.Option(help="Epochs at most.")] = _DEFAULTS.epochs,
    target_accuracy: Annotated[
        float, typer.Option(help="Stop once the validation accuracy beats this ...")
    ] = _DEFAULTS.target_accuracy,
    target_train_accuracy: Annotated[
        float | None, typer.Option(help="... and the training accuracy this ...")
    ] = None,
    patience: Annotated[
        int, typer.Option(help="... in so many epochs in a row.")
    ] = _DEFAULTS.patience,
    time_budget: Annotated[
        float | None, typer.Option(help="Or once training has taken so many seconds.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the weights, the dropout and the images.")
    ] = _DEFAULTS.seed,
    validate: Annotated[bool, typer.Option(help="After every epoch.")] = _DEFAULTS.validate,
    noise_scale: Annotated[
        bool, typer.Option("--noise-scale", help="Log the gradient noise scale of every epoch.")
    ] = _DEFAULTS.noise_scale,
    save_model: Annotated[
        bool, typer.Option(help="Leave the trained model in the run folder.")
    ] = _DEFAULTS.save_model,
    run_dir: Annotated[
        str | None, typer.Option(help="New folder for the run's files.", show_default="runs/<date>")
    ] = None,
    log_dir: Annotated[str | None, typer.Option(help="Folder for TensorBoard's files.")] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(help=f"Trackers, several between commas. {choices(TRACKERS)}"),
    ] = None,
    track_batches: Annotated[
        int | None, typer.Option(help="Track the metrics each so many steps, too.")
    ] = None,
    log_model: Annotated[
        bool, typer.Option("--log-model", help="Keep the best model as a W&B artifact.")
    ] = False,
    profile_batches: Annotated[
        str | None, typer.Option(help="First and last step to profile for TensorBoard: 10,20.")
    ] = None,
    config_from_wandb: Annotated[
        bool, typer.Option("--config-from-wandb", help="Settings from a W&B sweep's agent.")
    ] = False,
) -> None:
    """Train a WideResNet on Fashion-MNIST."""
    sources = ("context", "config", "recipe", "config_from_wandb")
    options = {k: v for k, v in locals().items() if k not in (*sources, "sources")}
    given = {name: value for name, value in options.items() if was_given(context, name)}
    settings = {} if recipe is None else read_recipe(recipe)
    settings |= {} if config is None else read_settings(config)
    if config_from_wandb:
        from .tracking.sweep import sweep_config

        chosen = sweep_config(settings, given)
    else:
        chosen = TrainConfig.from_dict(settings | given)
    from .training import train as run

    if run(chosen).interrupted:
        raise typer.Exit(130)


@app.command()
def dashboard(
    project: Annotated[str, typer.Option(help="W&B project whose runs it shows.")] = "kdist",
    entity: Annotated[
        str | None, typer.Option(help="User or team.", show_default="the account's")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="A report, not a workspace.")] = False,
) -> None:
    """Make a W&B workspace of runs that were tracked by W&B."""
    from .tracking.dashboard import dashboard

    typer.echo(dashboard(project=project, entity=entity, report=report))


@app.command()
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, sweep folders, folders of these, or CSV files with batch_size,"
            " images_per_sec and, if you like, replicas."
        ),
    ],
    output: Annotated[
        str, typer.Option(help="HTML file; the charts go beside it as PNG files.")
    ] = "report.html",
    baseline: Annotated[
        str | None,
        typer.Option(help="Run that settings are compared with.", show_default="the first"),
    ] = None,
) -> None:
    """Show runs and sweeps in one HTML file that opens without a network."""
    from .report.writing import write_report

    typer.echo(write_report(runs, output=output, baseline=baseline))


@app.command()
def devices(
    replicas: Annotated[
        int | None, typer.Option(help="As for train.", show_default="every GPU, else the CPU")
    ] = None,
) -> None:
    """List the devices that a strategy would use."""
    TrainConfig(replicas=replicas)  # refuses a wrong number before TensorFlow is imported
    from .hardware import device_names
    from .strategy import MirroredStrategy

    strategy = MirroredStrategy(replicas=replicas)
    for device, name in zip(strategy.devices, device_names(strategy.devices), strict=True):
        typer.echo(f"{device}  {name}")


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow's Python logger tells every reduction at level INFO.
    import logging

    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        sys.exit(app(standalone_mode=False))
    except (UserError, typer.TyperException) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else error
        print(f"kdist: error: {message}", file=sys.stderr)
        sys.exit(2)
