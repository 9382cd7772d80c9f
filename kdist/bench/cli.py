"""`kdist bench`: parses and calls."""

from typing import Annotated

import typer

from ..config import TrainConfig
from ..links import LINKS, choose_link
from ..step_time import format_steps, parse_replicas


def bench(
    quick: Annotated[
        bool, typer.Option(help="The most compared only: under five minutes.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Turns of each contestant.", show_default="7, quick 3")
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="JSON file.", show_default="runs/bench-<date>.json")
    ] = None,
    show: Annotated[
        str | None, typer.Option(help="Print the table of such a file, and run nothing.")
    ] = None,
    predict: Annotated[
        str | None,
        typer.Option(help="Instead: measure a step and predict it on so many replicas: 8,64,512."),
    ] = None,
    link: Annotated[
        str, typer.Option(help=f"For --predict. One of {', '.join(LINKS)}.")
    ] = "nvlink",
    latency_us: Annotated[
        float | None, typer.Option(help="Microseconds.", show_default="the link's")
    ] = None,
    bandwidth_gb: Annotated[
        float | None, typer.Option(help="GB a second.", show_default="the link's")
    ] = None,
    overlap: Annotated[
        float, typer.Option(help="Share of the gradients sent during the backward pass.")
    ] = 0.0,
    scaling: Annotated[
        str, typer.Option(help="weak: same batch a replica; strong: same global batch.")
    ] = "weak",
    depth: Annotated[int, typer.Option(help="Of the network that --predict measures.")] = 16,
    width: Annotated[int, typer.Option(help="Of the same.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Images of the measured step.")] = 128,
) -> None:
    """Race kdist against stock Keras and PyTorch, interleaved."""
    from . import runs

    if show is not None:
        typer.echo(runs.show(show))
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
        typer.echo(f"{chosen.name}: {chosen.source}")
        typer.echo(format_steps(steps))
    else:
        typer.echo(runs.bench(quick=quick, rounds=rounds, output=output))
