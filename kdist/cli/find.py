"""`kdist find`: options of the searches for batch sizes and learning rates."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ..arguments import local_path, positive_integer
from ..files import create_writable_folder, folder_for_files
from ..tools.find.rate_curve import LEAST_RATE, MOST_RATE, check_range, write_curve
from ..training.config import TrainConfig
from ..training.user_model.user_functions import split_data_name
from .options import parse_integer

app = App(
    name="find",
    help="Find batch size and learning rate for your own model.",
)

Model = Annotated[
    str,
    Parameter(help="FILE.py:FUNCTION; the function returns a compiled model.", show_default=False),
]
Data = Annotated[
    str,
    Parameter(help="Function in the same file that returns the data, or FILE.py:FUNCTION."),
]
Replicas = Annotated[
    int | None,
    Parameter(
        help="As in kdist train; by default every GPU, or else the CPU.", converter=parse_integer
    ),
]
BatchSize = Annotated[
    int | None,
    Parameter(help="Samples per step and replica, by default 32.", converter=parse_integer),
]
Seed = Annotated[
    int,
    Parameter(help="Seed of the initial weights and all random draws.", converter=parse_integer),
]


@app.command
def batch(
    model: Model,
    /,
    *,
    data: Data = "data",
    replicas: Replicas = None,
    shard_optimizer: Annotated[
        bool,
        Parameter(
            help="Divide the optimizer's state over the replicas, as kdist train --shard-optimizer."
        ),
    ] = False,
    shard_weights: Annotated[
        bool,
        Parameter(
            help="Also divide the weights over the replicas, as kdist train --shard-weights."
        ),
    ] = False,
    start: Annotated[
        int, Parameter(help="First batch size per replica.", converter=parse_integer)
    ] = 16,
    most: Annotated[
        int, Parameter(help="Largest batch size per replica.", converter=parse_integer)
    ] = 65536,
) -> None:
    """Find the largest batch size per replica that fits into the memory."""
    _check_options(model, data, replicas)
    from ..tools.find.batch_size import find_batch_size

    result = find_batch_size(
        model,
        data,
        replicas=replicas,
        shard_optimizer=shard_optimizer,
        shard_weights=shard_weights,
        start=start,
        most=most,
        announce=lambda line: print(line, flush=True),
    )
    print(result)


@app.command
def rate(
    model: Model,
    /,
    *,
    data: Data = "data",
    replicas: Replicas = None,
    batch_size: BatchSize = None,
    least: Annotated[float, Parameter(help="First learning rate.")] = LEAST_RATE,
    most: Annotated[float, Parameter(help="Last learning rate.")] = MOST_RATE,
    steps: Annotated[
        int, Parameter(help="Steps from the first rate to the last.", converter=parse_integer)
    ] = 200,
    seed: Seed = 0,
    output: Annotated[str, Parameter(help="Folder for learning-rate.html.")] = "runs/find",
) -> None:
    """Train with a rising learning rate, and suggest a tenth of the rate of the lowest loss."""
    _check_options(model, data, replicas, batch_size)
    local_path("--output", output)
    check_range(least=least, most=most, steps=steps)
    folder = Path(output)
    with folder_for_files(folder):
        create_writable_folder(folder, option="--output")
        from ..tools.find.learning_rate import find_learning_rate

        curve = find_learning_rate(
            model,
            data,
            batch_size=batch_size,
            replicas=replicas,
            least=least,
            most=most,
            steps=steps,
            seed=seed,
        )
        page = write_curve(curve, folder, heading=model.rpartition(":")[2])
    print(f"{curve}\nChart: {page}")


def _check_options(
    model: str, data: str, replicas: int | None, batch_size: int | None = None
) -> None:
    """Reject invalid options before TensorFlow is imported."""
    split_data_name(model, data)
    TrainConfig(replicas=replicas)
    if batch_size is not None:
        positive_integer("--batch-size", batch_size, hint="pass samples per replica")
