"""`plan_replicas`: batch size, learning rate and warm-up for a number of replicas."""

import dataclasses
import math
from collections.abc import Callable

import keras

from ..arguments import positive_integer
from ..batch_norm.find import batch_norms
from ..callbacks.gradient_noise_scale import GradientNoiseScale
from ..distribute.mirrored_strategy import MirroredStrategy
from ..errors import TrainingError, UserError
from ..performance.links import Link, choose_link
from ..user_model.functions import UserFunctions
from .advice import Advice, Measurements, advise, reasons
from .batch_size import BatchSizeTry, find_batch_size, free_memory
from .functions import Function, as_functions, function_name
from .learning_rate import optimizer_of, range_test, set_given_rate
from .one_try import Try
from .rate_curve import LEAST_RATE, MOST_RATE, LossAverage, RateCurve, check_range, rates_of
from .short_fit import batched_anew, build_model, fit_steps
from .try_process import run_in_process

_NOISE_STEPS = 100
_RATE_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Advice, and what it is based on.

    Attributes:
        advice: The settings.
        measurements: What was measured on one replica.
        curve: The curve of the range test.
        link: The link for which sums over replicas were predicted.
    """

    advice: Advice
    measurements: Measurements
    curve: RateCurve
    link: Link

    def lines(self) -> list[str]:
        """Return the advice, and a line for each of its reasons."""
        lines = [str(self.advice), *reasons(self.measurements, self.advice, self.link)]
        if not self.curve.is_sure:
            lines.append(
                f"the learning rate is unsure ({self.curve.doubt}): try half and twice as much, too"
            )
        return lines


def plan_replicas(
    build: Function,
    data: Function = "data",
    *,
    replicas: int,
    batch_size: int | None = None,
    link: str = "pcie",
    rule: str = "auto",
    steps: int = 200,
    monitor: str = "loss",
    optimizer: str | None = None,
    seed: int | None = 0,
    announce: Callable[[str], object] = lambda _: None,
) -> Plan:
    """Plan batch size, learning rate and warm-up for a number of replicas, and predict the speed.

    Everything is measured on one replica, so a machine with one GPU is enough. It finds the largest
    batch size, and the step time of each batch size that it tries; the learning rate by a range
    test; and the gradient noise scale by training at that rate. These determine the batch size per
    replica with which N replicas reach a given loss soonest, and the learning rate for it.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`.
        data: A function that returns the data, or its name, as for `kdist.find_batch_size`.
        replicas: Number of replicas to plan for.
        batch_size: Samples per replica and step; by default the best of those that fit.
        link: Link between replicas: `"pcie"`, `"nvlink"` or `"ethernet"`.
        rule: Rule that scales the learning rate, as in `kdist.scale_learning_rate`.
        steps: Steps of the range test.
        monitor: The loss of the range test, as for `kdist.find_learning_rate`.
        optimizer: The attribute of the model that holds the optimizer whose rate is found.
        seed: Seed of the initial weights and all draws; `None` sets no seed.
        announce: Called with lines about the progress.

    Returns:
        The plan: `plan.advice` has the settings, `plan.lines()` tells how certain they are.

    Raises:
        UserError: An argument is out of range, or a function fails.
        TrainingError: Not even one sample fits into memory.

    Example:
        ```python
        if __name__ == "__main__":
            plan = kdist.plan_replicas("my_model.py:build", "data", replicas=8)
            for line in plan.lines():
                print(line)
        ```
    """
    count = positive_integer("replicas", replicas, hint="pass how many there will be")
    chosen = choose_link(link)
    check_range(steps=steps)
    seconds = _seconds(build, data, batch_size, announce)
    rate_batch = batch_size or min(_RATE_BATCH, max(seconds))
    if seed is not None:
        keras.utils.set_random_seed(seed)
    functions = batched_anew(as_functions(build, data))
    seconds = _filled(seconds, functions.load_data(rate_batch).samples(), replicas=count)
    announce(f"learning rate range test with batches of {rate_batch}")
    curve = range_test(
        functions,
        rates_of(LEAST_RATE, MOST_RATE, steps),
        LossAverage(smoothing=0.95, divergence=4.0),
        batch_size=rate_batch,
        replicas=1,
        monitor=monitor,
        optimizer=optimizer,
        seed=seed,
    )
    announce(f"gradient noise scale over {_NOISE_STEPS} steps")
    measured = _measure(functions, curve.suggestion, rate_batch, seconds, optimizer)
    advice = advise(measured, replicas=count, link=chosen, rule=rule)
    return Plan(advice=advice, measurements=measured, curve=curve, link=chosen)


def _seconds(
    build: Function, data: Function, batch_size: int | None, announce: Callable[[str], object]
) -> dict[int, float]:
    """Seconds of a step by the batch size, on one replica."""
    if batch_size is None:
        found = find_batch_size(
            build, data, replicas=1, steps=5, announce=lambda one: announce(str(one))
        )
        # The margin applies to what is proposed, too: the largest is taken to be that much faster.
        largest = found.batch_size
        return {
            min(one.batch_size, largest): one.result.seconds * min(1, largest / one.batch_size)
            for one in found.tries
            if one.result.works and one.result.seconds is not None
        }
    positive_integer("batch_size", batch_size, hint="pass samples per replica")
    result = run_in_process(
        Try(
            model=function_name(build),
            data=function_name(data),
            batch_size=batch_size,
            replicas=1,
            steps=5,
            memory=free_memory(),
        )
    )
    announce(str(BatchSizeTry(batch_size=batch_size, result=result)))
    if not result.works or result.seconds is None:
        raise TrainingError(
            f"batch size {batch_size} does not work: there is not enough {result.why or 'time'};"
            " pass a smaller batch_size"
        )
    return {batch_size: result.seconds}


def _filled(seconds: dict[int, float], samples: int | None, *, replicas: int) -> dict[int, float]:
    """The batch sizes of which all replicas have one, as far as the number of samples is known."""
    filled = {b: s for b, s in seconds.items() if samples is None or b * replicas <= samples}
    if not filled:
        raise UserError(
            f"the data have {samples} samples, fewer than a batch of {replicas} replicas: pass a"
            " smaller batch_size, or fewer replicas"
        )
    return filled


def _measure(
    functions: UserFunctions,
    rate: float,
    batch: int,
    seconds: dict[int, float],
    optimizer: str | None,
) -> Measurements:
    strategy = MirroredStrategy(replicas=1)
    model = build_model(functions, strategy)
    chosen = optimizer_of(model, optimizer)
    with strategy.scope():
        set_given_rate(chosen, rate)
    loaded = functions.load_data(batch)
    noise = GradientNoiseScale(every=1, verbose=0)
    try:
        fit_steps(model, loaded, global_batch=batch, steps=_NOISE_STEPS, callbacks=[noise])
        scale = noise.noise_scale
    except UserError:  # a train_step of the user's own
        scale = math.nan
        fit_steps(model, loaded, global_batch=batch, steps=1)  # which may make its weights
    weights = model.trainable_variables
    inner = getattr(chosen, "inner_optimizer", chosen)
    return Measurements(
        seconds=seconds,
        noise_scale=scale,
        rate=rate,
        rate_batch=batch,
        optimizer=type(inner).__name__,
        gradient_bytes=sum(4.0 * math.prod(weight.shape) for weight in weights),
        small_collectives=2 * len(batch_norms(model)),
    )
