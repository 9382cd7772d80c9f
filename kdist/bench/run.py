"""`kdist bench`: run the benchmarks, or predict the time of a measured step."""

import datetime
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..arguments import path_text
from ..atomic_files import explain_write_errors, output_file
from ..errors import UserError, error_text
from ..input_files import parse_json, read_text
from ..performance.links import Link
from ..performance.step_time import StepTime, predict_step
from . import results
from .benchmark import Benchmark
from .benchmarks import (
    COMPILED,
    EAGER,
    JAX,
    KERAS,
    ONE,
    batch_sweep,
    inputs,
    tiny,
    training,
)
from .driver import fastest, run_benchmark
from .network_benchmarks import first_steps, inference_benchmarks, network_benchmarks

DEPTH, BATCH = 16, 128
WIDTHS = (1, 4)
SWEEP_ROUNDS, FEW_ROUNDS, START_ROUNDS = 3, 5, 2


def bench(
    *,
    quick: bool = False,
    rounds: int | None = None,
    output: str | None = None,
    own: Benchmark | None = None,
    announce: Callable[[str], None] = print,
) -> str:
    """Run the benchmarks, and write their results.

    Args:
        quick: Run only the smaller network and the most important candidates: under five minutes
            on two cores, instead of 17 (AVX-512) to 50 (AVX2).
        rounds: Turns of each candidate; by default 7, with `quick` 3.
        output: JSON file; by default `runs/bench-<date>-<time>.json`.
        own: Run this benchmark alone, such as one that `own_model` makes.
        announce: Called with lines about the progress.

    Returns:
        The results as a Markdown table.

    Raises:
        UserError: The file cannot be written, or is not one of `bench`; nothing was run then.
    """
    if output is None:
        output = f"runs/bench-{datetime.datetime.now():%Y-%m-%d-%H%M%S}.json"
    path = output_file(output, option="--output")
    _check_contents(path)
    _check_writable(path)
    rounds = rounds or (3 if quick else 7)
    done: list[dict[str, Any]] = []

    def run(benchmark: Benchmark, count: int = rounds) -> dict[str, Any]:
        outcomes = run_benchmark(benchmark, rounds=count, announce=announce)
        done.append(results.as_json(benchmark, outcomes))
        results.write(path, done, {"quick": quick, "rounds": rounds})  # also if it is interrupted
        return outcomes

    if own is not None:
        outcomes = run(own)
        _check_any(outcomes)
    else:
        _run_all(run, quick=quick)
    announce(f"Written: {path}")
    return results.table(done)


def _run_all(run: Callable[..., dict[str, Any]], *, quick: bool) -> None:
    run(tiny())
    run(inputs())
    outcomes = run(training(DEPTH, WIDTHS[0], BATCH, 6, quick=quick))
    if not quick:
        run(training(DEPTH, WIDTHS[1], BATCH, 1))
        best = fastest(outcomes, [KERAS, ONE, EAGER, COMPILED, JAX], count=2)
        for benchmark in batch_sweep(best, DEPTH, WIDTHS[0]):
            run(benchmark, SWEEP_ROUNDS)
        for benchmark in (*network_benchmarks(), *inference_benchmarks()):
            run(benchmark, FEW_ROUNDS)
        start, *slow = first_steps()
        run(start, START_ROUNDS)
        for benchmark in slow:
            run(benchmark, 1)  # TensorFlow traces stock Keras's for minutes


def _check_any(outcomes: dict[str, Any]) -> None:
    """Raise the error that no candidate was without, as it is the user's."""
    if any(outcome.seconds for outcome in outcomes.values()):
        return
    reasons = [outcome.skipped for outcome in outcomes.values()]
    raise UserError(f"no candidate could train the model: {reasons[0].removeprefix('UserError: ')}")


def show(path: str) -> str:
    """Return the table of results that `bench` has written to a file.

    Raises:
        UserError: It cannot be read, or is not such a file.
    """
    path_text("--show", path)
    try:
        content = parse_json(read_text(path))
        written = content["format"]
        if written == results.FORMAT:
            return results.table(content["benchmarks"])
    except OSError as error:
        raise _no_results(path, error_text(error)) from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise _no_results(path, f"{type(error).__name__}: {error}") from error
    raise UserError(
        f"{path} has format {written}, this kdist reads {results.FORMAT}: run kdist bench again"
    )


def _no_results(path: str, problem: object) -> UserError:
    return UserError(
        f"{path} is not a file of kdist bench ({problem}): pass what its --output wrote"
    )


def predict(
    replicas: Sequence[int],
    link: Link,
    *,
    depth: int = DEPTH,
    width: int = WIDTHS[0],
    batch: int = BATCH,
    overlap: float = 0.0,
    scaling: str = "weak",
    announce: Callable[[str], None] = print,
) -> list[StepTime]:
    """Measure a step of a WideResNet on one replica, and predict its time on more replicas.

    Args:
        replicas: Numbers of replicas.
        link: The link between replicas.
        depth: Depth of the network.
        width: Width of the network.
        batch: Images of the measured step.
        overlap: As in `predict_step`.
        scaling: As in `predict_step`.
        announce: Called with lines about the progress.

    Returns:
        A prediction for each number of replicas.

    Raises:
        UserError: The network cannot be trained on this machine.
    """
    options: dict[str, Any] = {"link": link, "overlap": overlap, "scaling": scaling}
    for count in replicas:  # rejects invalid arguments before the measurement
        predict_step(compute_seconds=1, gradient_bytes=1, replicas=count, **options)
    full = training(depth, width, batch, 4)
    benchmark = Benchmark(
        title=full.title, candidates=[c for c in full.candidates if c.name == ONE]
    )
    outcome = run_benchmark(benchmark, rounds=3, announce=announce)[ONE]
    if not outcome.seconds:
        raise UserError(
            f"the step of {benchmark.title} could not be measured: {outcome.skipped}; pass a"
            " smaller network or batch"
        )
    facts = outcome.facts
    return [
        predict_step(
            compute_seconds=statistics.median(outcome.seconds) / facts["steps"],
            gradient_bytes=facts["gradient_bytes"],
            replicas=count,
            small_collectives=2 * facts["batch_norms"],
            **options,
        )
        for count in replicas
    ]


def _check_contents(path: Path) -> None:
    """Refuse to replace a file of something else."""
    if not path.exists() or not path.stat().st_size:
        return
    try:
        content = parse_json(read_text(path))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or not {"format", "benchmarks"} <= content.keys():
        raise UserError(f"{path} is not a file of kdist bench: pass another --output, or remove it")


def _check_writable(path: Path) -> None:
    with explain_write_errors(path, hint="pass another --output"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    if not path.stat().st_size:
        path.unlink()
