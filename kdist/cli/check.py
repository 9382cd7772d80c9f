"""`kdist check`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter

from ..check.options import CheckOptions
from ..errors import UserError
from .integers import parse_integer
from .lists import parse_whole_numbers

_DEFAULT = CheckOptions()


def check(
    model: Annotated[str | None, Parameter(help="FILE.py:FUNCTION, your own build().")] = None,
    /,
    *,
    data: Annotated[
        str, Parameter(help="Function that returns the data, in that file or FILE.py:FUNCTION.")
    ] = "data",
    devices: Annotated[
        bool, Parameter(negative="", help="Train built-in models on this machine's devices.")
    ] = False,
    run: Annotated[
        bool, Parameter(negative="", help="Train on one replica and on several, and compare.")
    ] = False,
    replicas: Annotated[
        str | None,
        Parameter(
            help="Numbers of replicas, on logical CPUs if there are too few GPUs; 2,3 by default,"
            " with --devices all GPUs."
        ),
    ] = None,
    steps: Annotated[
        int, Parameter(help="Training steps of --run.", converter=parse_integer)
    ] = _DEFAULT.steps,
    batch_size: Annotated[
        int | None,
        Parameter(
            help="Samples per global batch of arrays; chosen by default.", converter=parse_integer
        ),
    ] = None,
    seed: Annotated[int, Parameter(help="Seed of all training runs.", converter=parse_integer)] = (
        _DEFAULT.seed
    ),
    json: Annotated[str | None, Parameter(help="Write the result to this file.")] = None,
) -> int:
    """Show what of your model's step is divided over replicas; with --run, that it is equal."""
    numbers = None if replicas is None else parse_whole_numbers("--replicas", replicas)
    if (model is None) != devices:
        raise UserError("kdist check needs either a model, FILE.py:FUNCTION, or --devices")
    from ..check.command import check_devices, check_file

    if model is None:
        return 0 if check_devices(numbers, json_file=json) else 1
    options = CheckOptions(
        replicas=numbers or _DEFAULT.replicas, steps=steps, batch_size=batch_size, seed=seed
    )
    return 0 if check_file(model, data, options, run=run, json_file=json) else 1
