"""`kdist check`: parses and calls, no logic."""

from typing import Annotated

from cyclopts import Parameter

from ..check.options import CheckOptions
from .integers import parse_integer
from .lists import parse_whole_numbers

_DEFAULT = CheckOptions()


def check(
    model: Annotated[str, Parameter(help="FILE.py:FUNCTION, your own build().")],
    /,
    *,
    data: Annotated[
        str, Parameter(help="Function that returns the data, in that file or FILE.py:FUNCTION.")
    ] = "data",
    replicas: Annotated[
        str, Parameter(help="Numbers of replicas, on logical CPUs if there are too few GPUs.")
    ] = ",".join(map(str, _DEFAULT.replicas)),
    workers: Annotated[
        int | None,
        Parameter(
            help="Also train in this many processes on this machine, all on the CPU.",
            converter=parse_integer,
        ),
    ] = None,
    steps: Annotated[
        int, Parameter(help="Training steps.", converter=parse_integer)
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
    synchronize: Annotated[
        bool, Parameter(help="Create the model by strategy.build, which synchronizes batch norms.")
    ] = _DEFAULT.synchronize,
    stock: Annotated[
        bool, Parameter(help="Also train under TensorFlow's own MirroredStrategy.")
    ] = _DEFAULT.stock,
    json: Annotated[str | None, Parameter(help="Write the result to this file.")] = None,
) -> int:
    """Check that your model is the same on several replicas, and if not, find out why."""
    options = CheckOptions(
        replicas=parse_whole_numbers("--replicas", replicas),
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        synchronize=synchronize,
        stock=stock,
    )
    from ..check.check_file import check_file

    equal = check_file(model, data, options, workers=workers, json_file=json)
    return 0 if equal else 1
