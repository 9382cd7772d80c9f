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
    model: Annotated[
        str | None,
        Parameter(help="FILE.py:FUNCTION, your own build(), to compare only that model."),
    ] = None,
    /,
    *,
    data: Annotated[
        str | None,
        Parameter(
            help="Function that returns its data, in that file or FILE.py:FUNCTION; default: data."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        Parameter(
            help="Maximum steps per turn with your model; 20 by default.",
            converter=parse_integer,
            validator=Number(gte=1, lte=1_000_000),
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        Parameter(
            help="Replicas to compare with one, for your model; every GPU by default, or two.",
            converter=parse_integer,
            validator=Number(gte=2, lte=64),
        ),
    ] = None,
    quick: Annotated[
        bool | None,
        Parameter(
            help="Run only the most important comparisons, in under five minutes.", negative=()
        ),
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
        Parameter(help="Measure a step and predict its time on more replicas: 8,64,512."),
    ] = None,
    prediction: Annotated[PredictionOptions, Parameter(name="*")] = _NONE_GIVEN,
) -> None:
    """Benchmark kdist against stock Keras and PyTorch, interleaved, or with your own model."""
    from ..bench import run as bench_run

    run: dict[str, Any] = {"quick": quick, "rounds": rounds, "output": output}
    own: dict[str, Any] = {"data": data, "steps": steps, "replicas": replicas}
    step = given(prediction)
    if model is None:
        _refuse(own, "does nothing without your own model, FILE.py:FUNCTION: add it")
    elif show is not None or predict is not None or quick:
        raise UserError(
            f"received the model {model}, which is compared alone: remove --show, --predict or"
            " --quick"
        )
    if show is not None:
        _refuse({**run, "predict": predict, **step}, "does nothing with --show: remove it")
        print(bench_run.show(show))
    elif predict is not None:
        _refuse(run, "does nothing with --predict: remove it")
        settings = Prediction(**step)
        link = settings.chosen_link()
        predicted = bench_run.predict(
            parse_replicas(predict),
            link,
            depth=settings.depth,
            width=settings.width,
            batch=settings.batch_size,
            overlap=settings.overlap,
            scaling=settings.scaling,
        )
        print(f"{link.name}: {link.source}")
        print(format_steps(predicted))
    elif model is not None:
        batch = step.pop("batch_size", None)
        _refuse(step, "does nothing with your own model: remove it")
        benchmark = _own_benchmark(model, own, batch)
        print(bench_run.bench(rounds=rounds, output=output, own=benchmark))
    else:
        _refuse(step, "does nothing without --predict REPLICAS: add that, or remove it")
        print(bench_run.bench(quick=bool(quick), rounds=rounds, output=output))


def _own_benchmark(model: str, options: Mapping[str, Any], batch: int | None) -> Any:
    """Return the benchmark of a user's model.

    Args:
        model: `"FILE.py:FUNCTION"`.
        options: Arguments of `own_model`; `None` for its defaults.
        batch: Samples per step over all replicas; `None` for the default.
    """
    from ..bench.own_model import own_model

    chosen = {name: value for name, value in options.items() if value is not None}
    sizes = {} if batch is None else {"batch": batch}
    return own_model(model, chosen.pop("data", "data"), **chosen, **sizes)


def _refuse(options: Mapping[str, Any], why: str) -> None:
    """Reject options that would do nothing.

    Raises:
        UserError: One is given.
    """
    idle = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if idle:
        raise UserError(f"received {', '.join(idle)}, which {why}")
