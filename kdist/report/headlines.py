"""The figures that a report begins with, each with how sure it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from scipy.stats import binomtest

from ..analysis.time_to_target import TimeToTarget, time_to_target
from ..charts.formatting import accuracy, rate, seconds
from ..runs.text import count
from .results import Result, by_group


@dataclass(frozen=True)
class Headline:
    """A figure in large type.

    Attributes:
        title: What it is, with its unit.
        value: The figure.
        of: Whose it is.
        sure: How sure it is.
    """

    title: str
    value: str
    of: str
    sure: str


def headlines(results: Sequence[Result]) -> list[Headline]:
    """Best accuracy, images a second and time to the target; what was not measured is left out."""
    found = (_best_accuracy(results), _fastest(results), _soonest(results))
    return [headline for headline in found if headline]


def _best_accuracy(results: Sequence[Result]) -> Headline | None:
    told = [result for result in results if result.accuracy is not None]
    if not told:
        return None
    best = max(told, key=lambda result: result.accuracy or 0.0)
    sure = ""
    if best.validation_images and best.accuracy is not None:
        right = round(min(best.accuracy, 1.0) * best.validation_images)
        # Wilson's interval holds for accuracies near 1 too.
        interval = binomtest(right, best.validation_images).proportion_ci(method="wilson")
        sure = (
            f"95 % interval {interval.low:.3f} to {interval.high:.3f} by the chance of"
            f" {best.validation_images:,} test images. "
        )
    epoch = "" if best.accuracy_epoch is None else f", epoch {best.accuracy_epoch}"
    choice = "epochs" if len(told) == 1 else f"{len(told)} runs and their epochs"
    return Headline(
        "Best validation accuracy",
        accuracy(best.accuracy),
        f"{best.name}{epoch}",
        f"{sure}The best of {choice}, so it flatters.",
    )


def _fastest(results: Sequence[Result]) -> Headline | None:
    told = [result for result in results if result.images_per_sec is not None]
    if not told:
        return None
    # The fastest of many single measurements is the luckiest: settings are compared.
    groups = {
        tuple(g): median(result.images_per_sec or 0.0 for result in g) for g in by_group(told)
    }
    group, speed = max(groups.items(), key=lambda one: one[1])
    best, ends = group[0], [one.images_per_sec or 0.0 for one in group]
    if len(group) > 1:
        basis, ends = f"Median of {count(len(group), 'measurement')}", [min(ends), max(ends)]
    else:
        basis, ends = best.rate_basis, list(best.rate_spread or ())
    spread = f", {rate(ends[0])} to {rate(ends[1])}" if ends else ""
    return Headline(
        "Images a second, fastest",
        rate(speed),
        f"{_named(group)}: {best.facts}",
        f"{basis[:1].upper()}{basis[1:]}{spread}.",
    )


def _soonest(results: Sequence[Result]) -> Headline | None:
    told = [t for t in results if t.target is not None and t.duration is not None]
    if not told:
        return None
    # Times to different targets cannot be compared.
    target = Counter(result.target for result in told).most_common(1)[0][0]
    title = f"Time to accuracy above {target:g}"
    groups = by_group([result for result in told if result.target == target])
    timed = [(results_to_target(group), group) for group in groups]
    reached = [(time, group) for time, group in timed if time.median is not None]
    if not reached:
        got_there = sum(time.reached for time, _ in timed)
        if len(told) == 1:
            return Headline(title, "not reached", told[0].name, "One run, which did not get there.")
        runs = count(sum(time.runs for time, _ in timed), "run")
        of = f"{got_there} of {runs} got there" if got_there else f"none of {runs} got there"
        return Headline(title, "not reached", of, "Half of a setting's runs have to get there.")
    time, group = min(reached, key=lambda one: one[0].median or 0.0)
    of = f"{_named(group)}: {group[0].facts}"
    return Headline(title, seconds(time.median), of, confidence_text(time))


def _named(group: Sequence[Result]) -> str:
    return group[0].name if len(group) == 1 else f"{len(group)} runs like {group[0].name}"


def results_to_target(results: Sequence[Result]) -> TimeToTarget:
    """The time to the target of results that differ in seed only; each has a duration."""
    durations = [result.duration for result in results if result.duration is not None]
    return time_to_target(durations, [result.reached for result in results])


def confidence_text(time: TimeToTarget) -> str:
    """The confidence interval in words, and what it rests on."""
    if time.runs == 1:
        return "One run: no interval. Several seeds would tell one."
    runs = f"{time.reached} of {count(time.runs, 'run')} got there"
    if time.low is None and time.high is None:
        return f"Median; {runs}, too few for an interval."
    high = "beyond what ran" if time.high is None else seconds(time.high)
    low = "0 s" if time.low is None else seconds(time.low)
    return f"Median; 95 % interval {low} to {high}; {runs}."
