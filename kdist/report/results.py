"""The headlines of each data set: the best accuracy, images per second and time to the target."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..charts.statistics import row_to_target, time_to_target
from ..charts.tables import accuracy, rate, seconds
from ..training.console import count
from ..training.record import RunRecord, finite
from ..training.settings import FOLDERS
from .inputs import Sources, data_set
from .studies import SweepRecord


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run, a sweep's point or a trial.

    Attributes:
        name: The run, point or trial, in words.
        data: The data set; only results of the same are compared.
        setting: Equal for results that differ in seed only.
        accuracy: The best validation accuracy.
        validation_images: The number of images of the accuracy.
        images_per_sec: The median of the epochs after the first.
        target: The accuracy to reach.
        reached: Whether it was reached.
        duration: Seconds until the target was reached or the training ended.
    """

    name: str
    data: str
    setting: str
    accuracy: float | None = None
    validation_images: float | None = None
    images_per_sec: float | None = None
    target: float | None = None
    reached: bool = False
    duration: float | None = None


@dataclass(frozen=True)
class Headline:
    """A figure in large type.

    Attributes:
        title: Its name, with the unit and the data set.
        value: The figure.
        about: The runs of the figure, and how certain it is.
    """

    title: str
    value: str
    about: str


def find_results(sources: Sources) -> list[Result]:
    """Collect the results of all runs, sweeps and searches."""
    results = [_run_result(run) for run in sources.runs]
    results += [_point_result(sweep, row) for sweep in sources.sweeps for row in sweep.done]
    results += [
        Result(
            name=f"{search.name}, {row['name']}",
            data=data_set(search.settings),
            setting=f"{search.path} {row['name']}",
            accuracy=finite(row["best_val_accuracy"]),
            images_per_sec=finite(row["images_per_sec"]),
        )
        for search in sources.searches
        for row in search.ranked
    ]
    return results


def _run_result(run: RunRecord) -> Result:
    compared = {k: v for k, v in run.settings.items() if k not in FOLDERS | {"seed"}}
    compared |= {name: run.fact(name) for name in ("replicas", "workers", "global_batch")}
    met = run.fact("met_seconds")
    return Result(
        name=run.name,
        data=data_set(run.settings, run.summary.get("data")),
        setting=json.dumps(compared, sort_keys=True),
        accuracy=run.best[0] if run.best else None,
        validation_images=run.fact("validation_images"),
        images_per_sec=run.images_per_sec if run.is_warm else None,
        target=run.accuracy_target,
        reached=met is not None,
        duration=run.fact("seconds") if met is None else met,
    )


def _point_result(sweep: SweepRecord, row: dict[str, object]) -> Result:
    run = sweep.runs.get(str(row["name"]))
    settings = run.settings if run else sweep.train_settings
    duration, reached = row_to_target(row, "seconds")
    return Result(
        name=run.name if run else f"{sweep.name}, {row['name']}",
        data=data_set(settings, run.summary.get("data") if run else None),
        setting=f"{sweep.path} {sweep.experiment.group(row)}",
        accuracy=finite(row["best_val_accuracy"]),
        validation_images=run.fact("validation_images") if run else None,
        images_per_sec=finite(row["images_per_sec"]),
        target=finite(settings.get("target_accuracy")) if sweep.experiment.trains else None,
        reached=reached,
        duration=duration,
    )


def find_headlines(results: Sequence[Result]) -> list[Headline]:
    """Find the best of the results of each data set; results of different data are not compared."""
    headlines = []
    for data in dict.fromkeys(result.data for result in results):
        own = [result for result in results if result.data == data]
        headlines += [_best_accuracy(data, own), _fastest(data, own), _soonest(data, own)]
    return [headline for headline in headlines if headline]


def _by_setting(results: Sequence[Result]) -> list[list[Result]]:
    """Group the results that differ in seed only."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.setting, []).append(result)
    return list(groups.values())


def _name_group(group: Sequence[Result]) -> str:
    return group[0].name + (f" and {len(group) - 1} more" if len(group) > 1 else "")


def _best_accuracy(data: str, results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.accuracy is not None]
    if not known:
        return None
    best = max(known, key=lambda result: result.accuracy or 0.0)
    value, images = best.accuracy or 0.0, best.validation_images or 0.0
    about = f"{best.name}, the best of {count(len(known), 'run')} and all epochs"
    if images > 0 and 0 <= value <= 1:
        error = math.sqrt(value * (1 - value) / images)
        about += f"; standard error {error:.3f} on {count(images, 'image')}"
    return Headline(f"Best validation accuracy on {data}", accuracy(value), about)


def _fastest(data: str, results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.images_per_sec is not None]
    # The fastest of many single measurements is the luckiest: medians of settings are compared.
    speeds = [
        (median(result.images_per_sec or 0.0 for result in group), group)
        for group in _by_setting(known)
    ]
    if not speeds:
        return None
    speed, group = max(speeds, key=lambda pair: pair[0])
    about = f"{_name_group(group)}; median of {count(len(group), 'run')}"
    return Headline(f"Images per second on {data}", rate(speed), about)


def _soonest(data: str, results: Sequence[Result]) -> Headline | None:
    known = [r for r in results if r.target is not None and r.duration is not None]
    if not known:
        return None
    # Times to different targets cannot be compared.
    target = Counter(result.target for result in known).most_common(1)[0][0]
    groups = _by_setting([result for result in known if result.target == target])
    times = [
        (time_to_target([r.duration or 0.0 for r in group], [r.reached for r in group]), group)
        for group in groups
    ]
    time, group = min(times, key=lambda pair: pair[0].median or math.inf)
    title = f"Time to accuracy above {target:g} on {data}"
    if time.median is None:
        reached, runs = sum(t.reached for t, _ in times), sum(t.runs for t, _ in times)
        return Headline(title, "not reached", f"{reached} of {count(runs, 'run')} reached it")
    about = f"{_name_group(group)}; median, {time.reached} of {count(time.runs, 'run')} reached it"
    if time.low is not None:
        about += f", from {seconds(time.low)}" + (f" to {seconds(time.high)}" if time.high else "")
    return Headline(title, seconds(time.median), about)
