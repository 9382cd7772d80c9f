"""`kdist evaluate`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter

from ..data.datasets import DatasetName
from ..evaluation.options import EvaluateOptions, Views
from .integers import parse_integer


def evaluate(
    model: Annotated[str, Parameter(help="Folder of a run, or a .keras file.", show_default=False)],
    /,
    *,
    dataset: Annotated[
        DatasetName | None, Parameter(help="Data set; by default the run's.")
    ] = None,
    data_dir: Annotated[
        str | None, Parameter(help="Folder of the data set; by default the run's.")
    ] = None,
    data: Annotated[
        str | None,
        Parameter(
            help="Function that returns data of yours, FILE.py:FUNCTION, for a .keras file; by"
            " default the run's."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        Parameter(
            help="As for train; by default every GPU, or else the CPU.", converter=parse_integer
        ),
    ] = None,
    val_batch_size: Annotated[
        int | None,
        Parameter(
            help="Images per step and replica; by default the run's.", converter=parse_integer
        ),
    ] = None,
    averaged: Annotated[
        bool, Parameter(help="Evaluate the averaged weights.", negative=())
    ] = False,
    views: Annotated[
        Views,
        Parameter(
            help="mirror: average the predictions for an image and its mirror image; mirror-shift:"
            " also for both shifted by a pixel, to the top left and to the bottom right."
        ),
    ] = "none",
    watch: Annotated[
        float | None,
        Parameter(
            help="Look for new checkpoints every this many seconds, evaluate each, and end with"
            " the run."
        ),
    ] = None,
) -> None:
    """Print the accuracy and the loss of a saved model, on exactly all test images or your data."""
    from ..evaluation.run import evaluate as run

    run(
        model,
        EvaluateOptions(
            dataset=dataset,
            data_dir=data_dir,
            data=data,
            replicas=replicas,
            val_batch_size=val_batch_size,
            averaged=averaged,
            views=views,
            watch=watch,
        ),
    )
