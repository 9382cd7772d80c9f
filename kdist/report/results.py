"""The results of runs, points and trials, and the headlines that compare them."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..charts.statistics import Row, TimeToTarget, row_to_target, time_to_target
from ..charts.tables import accuracy, rate, seconds
from ..performance.hardware import on_cpu
from ..runs.record import RunRecord, finite
from ..runs.text import count
from ..training.settings import FOLDERS
from .inputs import Sources
from .studies import SweepRecord


@dataclass(frozen=True, kw_only=True)
class Result:
    """One training, or one measurement of its speed.

    Attributes:
        name: Of the run, point or trial.
        facts: Replicas, their kind and the global batch, in words.
        group: Equal for results that differ in seed only.
        accuracy: The best validation accuracy.
        epoch: Its epoch, from 1.
        validation_images: That it was counted on.
        images_per_sec: The median.
        is_warm: Whether the speed excludes the first epoch, which includes the tracing of the step.
        slowest: The slowest epoch.
        fastest: The fastest.
        target: The accuracy that was aimed at.
        reached: Whether it was reached.
        duration: Seconds to the target, or of the whole training where it was not reached;
            infinite where it diverged.
    """

    name: str
    facts: str
    group: str
    accuracy: float | None = None
    epoch: int | None = None
    validation_images: float | None = None
    images_per_sec: float | None = None
    is_warm: bool = True
    slowest: float | None = None
    fastest: float | None = None
    target: float | None = None
    reached: bool = False
    duration: float | None = None


def find_results(sources: Sources) -> list[Result]:
    """Collect the results of all runs, sweeps and searches."""
    results = [_of_run(run) for run in sources.runs]
    results += [_of_row(sweep, row) for sweep in sources.sweeps for row in sweep.done]
    results += [
        Result(
            name=f"{search.name}, trial {trial.trial_id}",
            facts="",
            group=f"{search.path} {trial.trial_id}",
            accuracy=finite(trial.metrics.get("val_accuracy")),
        )
        for search in sources.searches
        for trial in search.ranked
    ]
    return results


def _facts(replicas: float, of: str, global_batch: float, *, shared: bool) -> str:
    cores = " (logical CPUs, shared cores)" if shared else ""
    return f"{count(replicas, 'replica')}{of}{cores}, global batch {global_batch:,.0f}"


def _of_run(run: RunRecord) -> Result:
    compared = {k: v for k, v in run.settings.items() if k not in FOLDERS | {"seed"}}
    compared |= {name: run.fact(name) for name in ("replicas", "workers", "global_batch")}
    best, epoch = run.best or (None, None)
    met = run.fact("met_seconds")
    ended = math.inf if run.summary.get("diverged") else run.fact("seconds")
    return Result(
        name=run.name,
        facts=_facts(
            run.fact("replicas") or 1,
            run.of_workers,
            run.fact("global_batch") or 0,
            shared=run.shares_cores,
        ),
        group=json.dumps(compared, sort_keys=True),
        accuracy=best,
        epoch=epoch,
        validation_images=run.fact("validation_images"),
        images_per_sec=run.images_per_sec,
        is_warm=run.is_warm,
        slowest=min(run.rates, default=None),
        fastest=max(run.rates, default=None),
        target=run.accuracy_target,
        reached=met is not None or bool(run.summary.get("reached_target")),
        duration=ended if met is None else met,
    )


def _of_row(sweep: SweepRecord, row: Row) -> Result:
    run = sweep.runs.get(row["name"])
    settings = run.settings if run else sweep.train_settings
    replicas = row["replicas"]
    duration, reached = row_to_target(row, "seconds")
    return Result(
        name=run.name if run else f"{sweep.name}, {row['name']}",
        facts=_facts(
            replicas,
            "",
            row["global_batch"] or row["batch_size"] * replicas,
            shared=shares_cores(sweep, replicas),
        ),
        group=f"{sweep.path} {sweep.experiment.group(row)}",
        accuracy=row["best_val_accuracy"],
        epoch=run.best[1] if run and run.best else None,
        validation_images=run.fact("validation_images") if run else None,
        images_per_sec=row["images_per_sec"],
        slowest=row["images_per_sec_low"],
        fastest=row["images_per_sec_high"],
        target=finite(settings.get("target_accuracy")) if sweep.experiment.trains else None,
        reached=reached,
        duration=duration,
    )


def shares_cores(sweep: SweepRecord, replicas: float) -> bool:
    """Whether so many replicas of a sweep were logical CPUs of one processor."""
    return replicas > 1 and on_cpu(dict(sweep.machine))


@dataclass(frozen=True)
class Headline:
    """A figure in large type.

    Attributes:
        title: What it is, with its unit.
        value: The figure.
        of: Which runs it is of.
        certainty: How certain it is.
    """

    title: str
    value: str
    of: str
    certainty: str


def headlines(results: Sequence[Result]) -> list[Headline]:
    """Find the best accuracy, images per second and time to the target, if they were measured."""
    found = (_best_accuracy(results), _fastest(results), _soonest(results))
    return [headline for headline in found if headline]


def _by_group(results: Sequence[Result]) -> list[list[Result]]:
    """Group the results that differ in seed only."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return list(groups.values())


def _described(group: Sequence[Result]) -> str:
    first, more = group[0], len(group) - 1
    return f"{first.name}{f' and {more} more' if more else ''}: {first.facts}"


def _best_accuracy(results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.accuracy is not None]
    if not known:
        return None
    best = max(known, key=lambda result: result.accuracy or 0.0)
    value, images = best.accuracy or 0.0, round(best.validation_images or 0)
    interval = ""
    if images > 0:
        from scipy import stats  # takes a second to import

        # Wilson's interval holds for accuracies near 1 too.
        right = round(min(max(value, 0.0), 1.0) * images)
        found = stats.binomtest(right, images).proportion_ci(method="wilson")
        interval = f"95 % interval of {images:,} images: {found.low:.3f} to {found.high:.3f}. "
    return Headline(
        "Best validation accuracy",
        accuracy(value),
        best.name if best.epoch is None else f"{best.name}, epoch {best.epoch}",
        f"{interval}The best of {count(len(known), 'run')} and all epochs: expect a little less of"
        " new images.",
    )


def _fastest(results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.images_per_sec is not None]
    warm = [result for result in known if result.is_warm]
    # The fastest of many single measurements is the luckiest: settings are compared.
    speeds = [
        (median(one.images_per_sec or 0.0 for one in group), group)
        for group in _by_group(warm or known)
    ]
    if not speeds:
        return None
    speed, group = max(speeds, key=lambda one: one[0])
    ends = [end for one in group for end in (one.slowest, one.fastest) if end is not None]
    basis = f"Median of {count(len(group), 'run')}"
    if ends and min(ends) < max(ends):
        basis += f"; epochs from {rate(min(ends))} to {rate(max(ends))}"
    cold = "" if warm else " It is of the first epoch, which includes the tracing of the step."
    return Headline("Images per second", rate(speed), _described(group), f"{basis}.{cold}")


def _soonest(results: Sequence[Result]) -> Headline | None:
    known = [t for t in results if t.target is not None and t.duration is not None]
    if not known:
        return None
    # Times to different targets cannot be compared.
    target = Counter(result.target for result in known).most_common(1)[0][0]
    groups = _by_group([result for result in known if result.target == target])
    times = [(_to_target(group), group) for group in groups]
    reached, runs = sum(t.reached for t, _ in times), sum(t.runs for t, _ in times)
    time, group = min(times, key=lambda one: one[0].median or math.inf)
    title = f"Time to accuracy above {target:g}"
    if time.median is None:
        of = f"{reached} of {count(runs, 'run')} reached it"
        return Headline(title, "not reached", of, "Half of the runs of a setting have to reach it.")
    words = f"Median; {time.reached} of {count(time.runs, 'run')} reached it"
    if time.low is None and time.high is None:
        words += ", too few for an interval"
    else:
        end = "or more" if time.high is None else f"to {seconds(time.high)}"
        words += f"; 95 % interval {seconds(time.low or 0.0)} {end}"
    return Headline(title, seconds(time.median), _described(group), f"{words}.")


def _to_target(group: Sequence[Result]) -> TimeToTarget:
    durations = [result.duration for result in group if result.duration is not None]
    return time_to_target(durations, [result.reached for result in group])
