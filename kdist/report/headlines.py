"""The figures that a report begins with, each with how certain it is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..analysis.time_to_target import TimeToTarget, time_to_target
from ..charts.formatting import accuracy, rate, seconds
from ..runs.text import count
from .compared_results import Result, by_group


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
