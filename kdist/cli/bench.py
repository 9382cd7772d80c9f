"""`kdist bench`: parses and calls."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ..bench.prediction import Prediction
from ..errors import UserError
from ..performance.step_time import format_steps, parse_replicas
from .integers import parse_integer
from .options import given, options_of

_OPTIONS = options_of(Prediction)

if TYPE_CHECKING:
    from typing import Any as PredictionOptions
else:
    PredictionOptions = _OPTIONS

_NONE_GIVEN = _OPTIONS()


def bench(
    *,
    quick: Annotated[
        bool | None,
        Parameter(help="Run the most compared only, in under five minutes.", negative=()),
    ] = None,
    rounds: Annotated[
        int | None,
        Parameter(
            help="Turns of each candidate; 7 by default, 3 with --quick.",
            converter=parse_integer,
            validator=Number(gte=1, lte=1000),
        ),
    ] = None,
    output: Annotated[
        str | None, Parameter(help="JSON file; `runs/bench-<date>.json` by default.")
    ] = None,
    show: Annotated[
        str | None, Parameter(help="Print the table of such a file, and run nothing.")
    ] = None,
    predict: Annotated[
        str | None,
        Parameter(help="Measure a step and predict it on so many replicas: 8,64,512."),
    ] = None,
    prediction: Annotated[PredictionOptions, Parameter(name="*")] = _NONE_GIVEN,
) -> None:
    """Benchmark kdist against stock Keras and PyTorch, interleaved."""
    from ..bench import run as bench_run

    run: dict[str, Any] = {"quick": quick, "rounds": rounds, "output": output}
    step = given(prediction)
    if show is not None:
        _refuse({**run, "predict": predict, **step}, "does nothing with --show: remove it")
        print(bench_run.show(show))
    elif predict is not None:
        _refuse(run, "does nothing with --predict: remove it")
        settings = Prediction(**step)
        link = settings.chosen_link()
        steps = bench_run.predict(
            parse_replicas(predict),
            link,
            depth=settings.depth,
            width=settings.width,
            batch=settings.batch_size,
            overlap=settings.overlap,
            scaling=settings.scaling,
        )
        print(f"{link.name}: {link.source}")
        print(format_steps(steps))
    else:
        _refuse(step, "does nothing without --predict REPLICAS: add that, or remove it")
        print(bench_run.bench(quick=bool(quick), rounds=rounds, output=output))


def _refuse(options: Mapping[str, Any], why: str) -> None:
    """Reject options that would do nothing.

    Raises:
        UserError: One is given.
    """
    idle = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if idle:
        raise UserError(f"received {', '.join(idle)}, which {why}")
