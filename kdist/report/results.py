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
from ..runs.text import count, of_workers
from ..study.record import GridRecord, SearchRecord
from ..study.trials import TrialResult
from ..training.settings import FOLDERS
from .inputs import Sources

# What two runs of the same experiment may differ in.
INCIDENTAL = {"seed"} | FOLDERS


@dataclass(frozen=True, kw_only=True)
class Result:
    """One training, or one measurement of its speed.

    Attributes:
        name: Of the run, point or trial.
        facts: Replicas, their kind and the global batch, in words.
        group: Equal for results that differ in seed only.
        accuracy: The best validation accuracy.
        accuracy_epoch: Its epoch, from 1.
        validation_images: That it was counted on.
        images_per_sec: The median.
        is_warm: Whether the speed excludes the first epoch, which includes the tracing of the step.
        rate_spread: The slowest and the fastest epoch.
        rate_basis: What the median is of.
        target: The accuracy that was aimed at.
        reached: Whether it was reached.
        duration: Seconds to the target, or of the whole training where it was not reached;
            infinite where it diverged.
    """

    name: str
    facts: tuple[str, ...]
    group: str
    accuracy: float | None = None
    accuracy_epoch: int | None = None
    validation_images: int | None = None
    images_per_sec: float | None = None
    is_warm: bool = True
    rate_spread: tuple[float, float] | None = None
    rate_basis: str = ""
    target: float | None = None
    reached: bool = False
    duration: float | None = None


def find_results(sources: Sources) -> list[Result]:
    """Collect the results of all runs, sweeps, searches and CSV files."""
    results = [_of_run(run) for run in sources.runs]
    for sweep in sources.sweeps:
        results += _of_sweep(sweep)
    for search in sources.searches:
        results += [_of_trial(search, trial) for trial in search.ranked]
    for table in sources.measurements:
        for row in table.rows:
            facts = _facts(row["replicas"], row["replicas"] * row["batch_size"])
            results.append(
                Result(
                    name=table.name,
                    facts=facts,
                    group=f"{table.name} {' '.join(facts)}",
                    images_per_sec=row["images_per_sec"],
                    rate_basis=f"one number of {table.path.name}",
                )
            )
    return results


def _facts(
    replicas: float, global_batch: float, *, of_workers: str = "", shared_cores: bool = False
) -> tuple[str, ...]:
    cores = ("logical CPUs that share cores",) if shared_cores else ()
    return (count(replicas, "replica") + of_workers, *cores, f"global batch {global_batch:,.0f}")


def _of_run(run: RunRecord) -> Result:
    images = run.fact("validation_images")
    compared = {k: v for k, v in run.settings.items() if k not in INCIDENTAL}
    compared |= {name: run.fact(name) for name in ("replicas", "workers", "global_batch")}
    return Result(
        name=run.name,
        facts=_facts(
            run.fact("replicas") or 1,
            run.fact("global_batch") or 0,
            of_workers=run.of_workers,
            shared_cores=run.shares_cores,
        ),
        group=json.dumps(compared, sort_keys=True),
        accuracy=run.best[0] if run.best else None,
        accuracy_epoch=run.best[1] if run.best else None,
        validation_images=int(images) if images else None,
        images_per_sec=run.images_per_sec,
        is_warm=run.is_warm,
        rate_spread=(min(run.rates), max(run.rates)) if len(run.rates) > 1 else None,
        rate_basis=_rate_basis(run),
        target=run.accuracy_target,
        reached=run.met is not None,
        duration=run.met.seconds if run.met else _without_target(run),
    )


def _rate_basis(run: RunRecord) -> str:
    if not run.is_warm:
        return "the first epoch, which includes the tracing of the step"
    if len(run.rates) == 1:
        return "one epoch after the first"
    return f"median of {len(run.rates)} epochs after the first"


def _without_target(run: RunRecord) -> float | None:
    return math.inf if run.summary.get("diverged") else run.fact("seconds")


def _of_sweep(sweep: GridRecord) -> list[Result]:
    return [
        _of_row(
            sweep, row, sweep.runs.get(row["name"]), f"{sweep.path} {sweep.experiment.group(row)}"
        )
        for row in sweep.done
    ]


def _of_row(sweep: GridRecord, row: Row, run: RunRecord | None, key: str) -> Result:
    settings = run.settings if run else sweep.train_settings
    images = run.fact("validation_images") if run else None
    low, high = row.get("images_per_sec_low"), row.get("images_per_sec_high")
    spread = None if low is None or high is None or low == high else (low, high)
    replicas = row["replicas"] or 1
    reached = bool(row["reached_target"]) and row["seconds_to_target"] is not None
    return Result(
        name=row["name"] if run is None else run.name,
        facts=_facts(
            replicas,
            row["global_batch"] or row["batch_size"] * replicas,
            of_workers=of_workers(row["workers"]),
            shared_cores=shares_cores(sweep, replicas / (row["workers"] or 1)),
        ),
        group=key,
        accuracy=row["best_val_accuracy"],
        accuracy_epoch=run.best[1] if run and run.best else None,
        validation_images=int(images) if images else None,
        images_per_sec=row["images_per_sec"],
        rate_spread=spread,  # one timed epoch has none
        rate_basis="a point of the sweep" if spread else "a single measurement",
        target=finite(settings.get("target_accuracy")) if sweep.experiment.trains else None,
        reached=reached,
        duration=row_to_target(row, "seconds")[0],
    )


def shares_cores(sweep: GridRecord, replicas: float) -> bool:
    """Whether so many replicas of a sweep were logical CPUs of one processor."""
    known = isinstance(sweep.machine.get("devices"), list)
    return replicas > 1 and known and on_cpu(dict(sweep.machine))


def _of_trial(search: SearchRecord, trial: TrialResult) -> Result:
    batch = trial.values.get("batch_size", search.search.config.batch_size)
    return Result(
        name=f"{search.name}, trial {trial.trial_id}",
        facts=(f"batch {batch} per replica",),
        group=f"{search.path} {trial.trial_id}",
        accuracy=finite(trial.metrics.get("val_accuracy")),
    )


def by_group(results: Sequence[Result]) -> list[list[Result]]:
    """Group the results that differ in seed only."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return list(groups.values())


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
    found = (_best_accuracy(results), _speed(results), _soonest(results))
    return [headline for headline in found if headline]


def _best_accuracy(results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.accuracy is not None]
    if not known:
        return None
    best = max(known, key=lambda result: result.accuracy or 0.0)
    interval = ""
    if best.validation_images and best.accuracy is not None:
        from scipy import stats  # takes a second to import

        right = round(min(best.accuracy, 1.0) * best.validation_images)
        # Wilson's interval holds for accuracies near 1 too.
        found = stats.binomtest(right, best.validation_images).proportion_ci(method="wilson")
        interval = (
            f"95 % interval {found.low:.3f} to {found.high:.3f} from the number of test images,"
            f" {best.validation_images:,}. "
        )
    epoch = "" if best.accuracy_epoch is None else f", epoch {best.accuracy_epoch}"
    choice = "its epochs" if len(known) == 1 else f"{len(known)} runs and their epochs"
    return Headline(
        "Best validation accuracy",
        accuracy(best.accuracy),
        f"{best.name}{epoch}",
        f"{interval}The best of {choice}: expect a little less of new images.",
    )


def _speed(results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.images_per_sec is not None]
    warm = [result for result in known if result.is_warm]
    if warm:
        return _fastest(warm)
    if len(known) != 1:
        return None
    (only,) = known
    return Headline(
        "Images per second in the first epoch",
        rate(only.images_per_sec),
        _described([only]),
        "It includes the tracing of the step: train two epochs or more to measure the speed.",
    )


def _fastest(warm: Sequence[Result]) -> Headline:
    # The fastest of many single measurements is the luckiest: settings are compared.
    groups = {
        tuple(g): median(result.images_per_sec or 0.0 for result in g) for g in by_group(warm)
    }
    group, speed = max(groups.items(), key=lambda one: one[1])
    best, ends = group[0], [one.images_per_sec or 0.0 for one in group]
    if len(group) > 1:
        basis, ends = f"Median of {count(len(group), 'measurement')}", [min(ends), max(ends)]
    else:
        basis, ends = best.rate_basis, list(best.rate_spread or ())
    spread = f", {rate(ends[0])} to {rate(ends[1])}" if ends else ""
    return Headline(
        "Images per second" if len(groups) == 1 else "Images per second, fastest",
        rate(speed),
        _described(group),
        f"{basis[:1].upper()}{basis[1:]}{spread}.",
    )


def _soonest(results: Sequence[Result]) -> Headline | None:
    known = [t for t in results if t.target is not None and t.duration is not None]
    if not known:
        return None
    # Times to different targets cannot be compared.
    target = Counter(result.target for result in known).most_common(1)[0][0]
    title = f"Time to accuracy above {target:g}"
    groups = by_group([result for result in known if result.target == target])
    timed = [(results_to_target(group), group) for group in groups]
    reached = [(time, group) for time, group in timed if time.median is not None]
    if not reached:
        return _not_reached(title, known, [time for time, _ in timed])
    time, group = min(reached, key=lambda one: one[0].median or 0.0)
    return Headline(title, seconds(time.median), _described(group), confidence_text(time))


def _not_reached(title: str, known: Sequence[Result], times: Sequence[TimeToTarget]) -> Headline:
    if len(known) == 1:
        return Headline(title, "not reached", known[0].name, "One run, which did not reach it.")
    reached = sum(time.reached for time in times)
    runs = count(sum(time.runs for time in times), "run")
    of = f"{reached} of {runs} reached it" if reached else f"none of {runs} reached it"
    return Headline(title, "not reached", of, "Half of the runs of a setting have to reach it.")


def _described(group: Sequence[Result]) -> str:
    """Name one or several results, and add the facts that the name does not say."""
    first = group[0]
    name = first.name if len(group) == 1 else f"{len(group)} runs like {first.name}"
    facts = ", ".join(fact for fact in first.facts if fact not in first.name)
    return f"{name}: {facts}"


def results_to_target(results: Sequence[Result]) -> TimeToTarget:
    """Return the time to the target of results that differ in seed only; each has a duration."""
    durations = [result.duration for result in results if result.duration is not None]
    return time_to_target(durations, [result.reached for result in results])


def confidence_text(time: TimeToTarget) -> str:
    """Describe the confidence interval, and what it is based on."""
    if time.runs == 1:
        return "One run, so no interval: train several seeds for one."
    runs = f"{time.reached} of {count(time.runs, 'run')} reached it"
    if time.low is None and time.high is None:
        return f"Median; {runs}, too few for an interval."
    if time.high is None:
        return f"Median; 95 % interval {seconds(time.low)} or more; {runs}."
    low = "0 s" if time.low is None else seconds(time.low)
    return f"Median; 95 % interval {low} to {seconds(time.high)}; {runs}."
