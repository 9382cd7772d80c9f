"""`kdist sweep throughput`: parses and calls, no logic."""

from ..lists import parse_whole_numbers
from ..options import ConfigFile, OwnModelName, Recipe
from .options import (
    DEFAULTS,
    NOT_TIMED,
    TIMED,
    BatchSizes,
    Epochs,
    Replicas,
    Rounds,
    Sweep,
    Timed,
    run_sweep,
    train_settings,
)


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
    from ...sweep.throughput import ThroughputSweep

    experiment = ThroughputSweep(
        train=train,
        workers=sweep.worker_counts(),
        batch_sizes=batches,
        replicas=counts,
        epochs=epochs,
        rounds=rounds,
    )
    return run_sweep(experiment, sweep)
