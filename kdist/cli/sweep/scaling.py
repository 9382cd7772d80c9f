"""`kdist sweep scaling`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter

from ...data.datasets import MOST_IMAGES
from ...errors import UserError
from ..lists import parse_names, parse_whole_numbers
from ..options import ConfigFile, OwnModelName, Recipe
from .options import (
    DEFAULTS,
    NOT_TIMED,
    TIMED,
    Epochs,
    Rounds,
    Sweep,
    Timed,
    integer,
    run_sweep,
    train_settings,
)


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
    from ...sweep.checks import check_experiment
    from ...sweep.replica_counts import replica_counts
    from ...sweep.scaling import MODES, ScalingSweep

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
