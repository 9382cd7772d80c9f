"""`kdist bench`: parses and calls."""

from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from ..performance.links import LINKS, choose_link
from ..performance.step_time import format_steps, parse_replicas
from ..training.config import TrainConfig

_PREDICT = Group("Prediction")


def bench(
    *,
    quick: Annotated[
        bool, Parameter(help="Run the most compared only, in under five minutes.")
    ] = False,
    rounds: Annotated[
        int | None,
        Parameter(
            help="Turns of each candidate; 7 by default, 3 with --quick.", validator=Number(gte=1)
        ),
    ] = None,
    output: Annotated[
        str | None, Parameter(help="JSON file; runs/bench-<date>.json by default.")
    ] = None,
    show: Annotated[
        str | None, Parameter(help="Print the table of such a file, and run nothing.")
    ] = None,
    predict: Annotated[
        str | None,
        Parameter(
            help="Measure a step and predict it on so many replicas: 8,64,512.", group=_PREDICT
        ),
    ] = None,
    link: Annotated[
        str, Parameter(help=f"Link between replicas: {', '.join(LINKS)}.", group=_PREDICT)
    ] = "nvlink",
    latency_us: Annotated[
        float | None,
        Parameter(help="Latency in microseconds; by default the link's.", group=_PREDICT),
    ] = None,
    bandwidth_gb: Annotated[
        float | None,
        Parameter(help="Bandwidth in GB per second; by default the link's.", group=_PREDICT),
    ] = None,
    overlap: Annotated[
        float,
        Parameter(help="Fraction of the gradients sent during the backward pass.", group=_PREDICT),
    ] = 0.0,
    scaling: Annotated[
        str,
        Parameter(help="weak: same batch per replica; strong: same global batch.", group=_PREDICT),
    ] = "weak",
    depth: Annotated[int, Parameter(help="Layers of the measured network.", group=_PREDICT)] = 16,
    width: Annotated[int, Parameter(help="Its widening factor.", group=_PREDICT)] = 1,
    batch_size: Annotated[
        int, Parameter(help="Images of the measured step.", group=_PREDICT)
    ] = 128,
) -> None:
    """Benchmark kdist against stock Keras and PyTorch, interleaved."""
    from ..bench import runs

    if show is not None:
        print(runs.show(show))
    elif predict is not None:
        TrainConfig(depth=depth, width=width, batch_size=batch_size)  # refuses what is no network
        counts = parse_replicas(predict)
        chosen = choose_link(
            link,
            latency_seconds=None if latency_us is None else latency_us * 1e-6,
            bytes_per_second=None if bandwidth_gb is None else bandwidth_gb * 1e9,
        )
        steps = runs.predict(
            counts,
            chosen,
            depth=depth,
            width=width,
            batch=batch_size,
            overlap=overlap,
            scaling=scaling,
        )
        print(f"{chosen.name}: {chosen.source}")
        print(format_steps(steps))
    else:
        print(runs.bench(quick=quick, rounds=rounds, output=output))
