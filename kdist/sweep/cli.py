"""`kdist sweep`: parses and calls, no logic."""

from typing import Annotated, Any

import typer

from ..scaling import RULES
from .options import parse_names, parse_whole_numbers, train_settings, with_own

app = typer.Typer(
    name="sweep",
    help="Experiments of many runs, and how sure their result is."
    " Every option of `kdist train` can be given too, such as --depth 10 --width 1. A sweep that"
    " was cut short goes on when the same command is given again.",
    no_args_is_help=True,
)

_REST = {"allow_extra_args": True, "ignore_unknown_options": True}

# What a run for its speed has no use for, or the sweep decides.
_NOT_TIMED = (
    *("batch_size", "replicas", "epochs", "validate", "save_model", "val_batch_size"),
    *("target_accuracy", "target_train_accuracy", "patience", "time_budget"),
)

Output = Annotated[
    str | None,
    typer.Option(help="Folder; one of the same sweep goes on.", show_default="runs/sweep-<date>"),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever was cut short.")]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Run failed points again.")]
Batches = Annotated[str, typer.Option(help="Training images a batch and replica.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often each point is run.")]
Timed = Annotated[int, typer.Option(min=2, help="Of each run; the first is not timed.")]


@app.command(context_settings=_REST)
def throughput(
    context: typer.Context,
    batch_sizes: Batches = "8,16,32,64,128,256,512,700",
    replicas: Annotated[str, typer.Option(help="Numbers of replicas.")] = "1",
    epochs: Timed = 3,
    rounds: Rounds = 3,
    output: Output = None,
    fresh: Fresh = False,
    retry_failed: Retry = False,
) -> None:
    """Images a second against the batch; where larger batches stop paying."""
    train = train_settings(context, taken=_NOT_TIMED)
    batches, counts = _numbers("--batch-sizes", batch_sizes), _numbers("--replicas", replicas)
    from .sweeping import sweep
    from .throughput import ThroughputSweep

    experiment = ThroughputSweep(
        train=train, batch_sizes=batches, replicas=counts, epochs=epochs, rounds=rounds
    )
    _exit(sweep(lambda _: experiment, output=output, fresh=fresh, retry_failed=retry_failed))


@app.command(context_settings=_REST)
def accuracy(
    context: typer.Context,
    batch_sizes: Batches = "32,64,128,256,512",
    lr_rules: Annotated[
        str,
        typer.Option(
            help=f"How the rate follows the global batch, of {', '.join(RULES)}; several with"
            " commas between."
        ),
    ] = "linear",
    replicas: Annotated[str, typer.Option(help="Numbers of replicas.")] = "1",
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs of each setting; fewer than 7 tell no upper end.")
    ] = 7,
    target_accuracy: Annotated[float, typer.Option(help="Validation accuracy to beat ...")] = 0.85,
    patience: Annotated[int, typer.Option(help="... in so many epochs in a row.")] = 2,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds after which a run is given up.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs after which it is.")] = 40,
    base_lr: Annotated[float, typer.Option(help="Learning rate that suits ...")] = 0.01,
    base_batch: Annotated[int, typer.Option(min=1, help="... this global batch.")] = 32,
    output: Output = None,
    fresh: Fresh = False,
    retry_failed: Retry = False,
) -> None:
    """Seconds and epochs to a target accuracy, runs that never got there counted as such."""
    train = train_settings(context, taken=("batch_size", "replicas", "seed", "lr_rule", "validate"))
    train = with_own(
        context,
        train,
        target_accuracy=target_accuracy,
        patience=patience,
        epochs=epochs,
        time_budget=time_budget,
        base_lr=base_lr,
    )
    batches, counts = _numbers("--batch-sizes", batch_sizes), _numbers("--replicas", replicas)
    rules = parse_names("--lr-rules", lr_rules, RULES)
    from .accuracy import AccuracySweep
    from .sweeping import sweep

    experiment = AccuracySweep(
        train=train,
        batch_sizes=batches,
        lr_rules=rules,
        replicas=counts,
        base_lr=train.pop("base_lr"),
        base_batch=base_batch,
        seeds=seeds,
    )
    _exit(sweep(lambda _: experiment, output=output, fresh=fresh, retry_failed=retry_failed))


@app.command(context_settings=_REST)
def scaling(
    context: typer.Context,
    replicas: Annotated[
        str | None,
        typer.Option(help="Numbers of replicas.", show_default="1, 2, 4, ... every GPU"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Weak scaling: training images a batch and replica.")
    ] = 64,
    global_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Strong scaling: training images a batch.",
            show_default="the batch size, times the most replicas",
        ),
    ] = None,
    modes: Annotated[
        str, typer.Option(help="weak: same batch a replica; strong: same global batch.")
    ] = "weak,strong",
    epochs: Timed = 3,
    rounds: Rounds = 3,
    output: Output = None,
    fresh: Fresh = False,
    retry_failed: Retry = False,
) -> None:
    """Efficiency on 1 to N replicas, and what collectives and input take of a step."""
    train = train_settings(context, taken=_NOT_TIMED)
    counts = None if replicas is None else _numbers("--replicas", replicas)
    from .machine import replica_counts
    from .scaling import MODES, ScalingSweep
    from .sweeping import sweep

    chosen = parse_names("--modes", modes, MODES)

    def experiment(machine: dict[str, Any]) -> ScalingSweep:
        own = counts or replica_counts(machine)
        return ScalingSweep(
            train=train,
            batch_size=batch_size,
            global_batch=global_batch or batch_size * max(own),
            replicas=own,
            modes=chosen,
            epochs=epochs,
            rounds=rounds,
        )

    _exit(sweep(experiment, output=output, fresh=fresh, retry_failed=retry_failed))


def _numbers(option: str, text: str) -> list[int]:
    return parse_whole_numbers(option, text)


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)
