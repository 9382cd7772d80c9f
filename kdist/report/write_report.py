"""`write_report`: the headlines, tables and charts of runs, sweeps and searches as one page."""

import contextlib
import datetime
import itertools
import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..arguments import is_remote
from ..errors import UserError
from ..files import atomic_write, explain_write_errors, folder_for_files, output_file
from ..remote import local_records
from ..study.experiment import shared_cores_warning
from ..study.folder import Row
from ..study.search_results import trials_table
from ..study.search_settings import Search
from ..study.tables import MISSING, ResultsTable, accuracy, rate, seconds, setting
from ..training.console import count
from ..training.networks import NETWORKS, SIZES
from ..training.record import RunRecord, finite, sanitize_text
from ..training.settings import FOLDERS, model_name
from .charts import Chart, Figure, Point, Series
from .page import GENERATOR, Headline, Section, render_page
from .sources import SearchRecord, Sources, SweepRecord, compare_settings, data_set, find_sources

_FIRST_BYTES = 2000
_HINT = "pass another --output"


def write_report(
    paths: Sequence[str], *, output: str | None = None
) -> tuple[Path, list[tuple[str, str]]]:
    """Write an HTML report of runs, sweeps and searches.

    Args:
        paths: Folders of runs, sweeps and searches, or folders of these; they may be remote.
        output: The HTML file; an existing report is replaced. By default `report.html` in the
            folder that contains all local paths, which may be the only one of them; else in the
            working directory.

    Returns:
        The file, and the paths that the report does not show, each with the reason.

    Raises:
        UserError: Nothing can be shown, a path does not exist, `output` cannot be written or is not
            a report, or there is none and the paths have no folder in common.
    """
    with contextlib.ExitStack() as copies:
        addresses = {
            str(copies.enter_context(local_records(path))): path
            for path in paths
            if is_remote(path)
        }
        local = [path for path in paths if not is_remote(path)]
        sources = find_sources([*local, *addresses])
        page = output_file(_beside(local or ["."]) if output is None else output, option="--output")
        with explain_write_errors(page, hint=_HINT):
            if page.exists():
                with page.open("rb") as file:
                    if GENERATOR.encode() not in file.read(_FIRST_BYTES):
                        raise UserError(f"{page} is not a report of kdist: {_HINT}, or remove it")
        text = make_report(sources)
    for folder, address in addresses.items():
        text = text.replace(folder, address)
    with explain_write_errors(page, hint=_HINT), folder_for_files(page.parent):
        atomic_write(page, text)
    return page, sources.skipped


def _beside(paths: Sequence[str]) -> str:
    common = os.path.commonpath([os.path.abspath(path) for path in paths])
    if common == os.sep:
        raise UserError(f"{', '.join(paths)} have no folder in common: pass the page as --output")
    inside = Path(common).is_relative_to(Path.cwd())
    return os.path.join(os.path.relpath(common) if inside else common, "report.html")


def make_report(sources: Sources) -> str:
    """Return the page of the records."""
    return render_page(
        _title(sources),
        make_sections(sources),
        about=f"written {datetime.date.today().isoformat()} by kdist {__version__}",
        headlines=find_headlines(find_results(sources)),
    )


def make_sections(sources: Sources) -> list[Section]:
    """Return sweeps, searches, then the runs of each data set."""
    sections = [_sweep_section(sweep) for sweep in sources.sweeps]
    sections += [_search_section(search) for search in sources.searches]
    by_data: dict[str, list[RunRecord]] = {}
    for run in (*sources.runs, *sources.points):
        by_data.setdefault(data_set(run.settings, run.summary.get("data")), []).append(run)
    sections += [_runs_section(data, runs) for data, runs in by_data.items()]
    if sources.skipped:
        table = _reasons("Folders and files that are not shown", sources.skipped)
        sections.append(Section(title="Skipped", tables=[table]))
    return sections


def _title(sources: Sources) -> str:
    """Return the name of a single record, else the number of each kind."""
    names = [sweep.name for sweep in sources.sweeps]
    names += [search.name for search in sources.searches]
    names += [run.name for run in sources.runs]
    if len(names) == 1:
        return names[0]
    kinds = ((sources.sweeps, "sweep"), (sources.searches, "search"), (sources.runs, "run"))
    words = [count(len(records), noun) for records, noun in kinds if records]
    return ", ".join(words).replace("searchs", "searches")


def _reasons(title: str, rows: Sequence[tuple[str, str]]) -> ResultsTable:
    return ResultsTable(title=title, columns=("Name", "Reason"), rows=rows)


# Headlines


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run, a sweep's point or a trial.

    Attributes:
        name: The run, point or trial, in words.
        data: The data set; only results of the same are compared.
        setting: Equal for results that differ in seed only.
        accuracy: The best validation accuracy.
        images_per_sec: The median of the epochs after the first.
        target: The accuracy to reach.
        time: The seconds in which it was reached; infinite if it never was.
    """

    name: str
    data: str
    setting: str
    accuracy: float | None = None
    images_per_sec: float | None = None
    target: float | None = None
    time: float = math.inf


def find_results(sources: Sources) -> list[Result]:
    """Collect the results of runs, points that only measure speed, and trials."""
    return [
        *map(_run_result, (*sources.runs, *sources.points)),
        *(
            Result(
                name=f"{sweep.name}, {row['name']}",
                data=data_set(sweep.train_settings),
                setting=f"{sweep.path} {[row[name] for name in sweep.experiment.setting]}",
                images_per_sec=row["images_per_sec"],
            )
            for sweep in sources.sweeps
            for row in sweep.done
            if not sweep.experiment.trains  # the others have runs
        ),
        *(
            Result(
                name=f"{search.name}, {row['name']}",
                data=data_set(search.search.config.to_dict()),
                setting=f"{search.path} {row['name']}",
                accuracy=finite(row["best_val_accuracy"]),
                images_per_sec=finite(row["images_per_sec"]),
            )
            for search in sources.searches
            for row in search.ranked
        ),
    ]


def _run_result(run: RunRecord) -> Result:
    compared = {k: v for k, v in run.settings.items() if k not in FOLDERS | {"seed"}}
    compared |= {name: run.fact(name) for name in ("replicas", "workers", "global_batch")}
    met = run.fact("met_seconds")
    is_timed = run.fact("seconds") is not None and run.settings.get("validate", True)
    return Result(
        name=run.name,
        data=data_set(run.settings, run.summary.get("data")),
        setting=json.dumps(compared, sort_keys=True),
        accuracy=run.best[0] if run.best else None,
        images_per_sec=run.images_per_sec if run.is_warm else None,
        target=run.accuracy_target if is_timed else None,
        time=math.inf if met is None else met,
    )


def find_headlines(results: Sequence[Result]) -> list[Headline]:
    """Find the best of the results of each data set; results of different data are not compared."""
    headlines = []
    for data in dict.fromkeys(result.data for result in results):
        own = [result for result in results if result.data == data]
        headlines += [_best_accuracy(data, own), _fastest(data, own), _soonest(data, own)]
    return [headline for headline in headlines if headline]


def _best_accuracy(data: str, results: Sequence[Result]) -> Headline | None:
    known = [(result.accuracy, result.name) for result in results if result.accuracy is not None]
    if not known:
        return None
    value, name = max(known)
    about = f"{name}, the best of {count(len(known), 'run')} and all epochs"
    return Headline(f"Best validation accuracy on {data}", accuracy(value), about)


def _fastest(data: str, results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.images_per_sec is not None]
    if not known:
        return None
    # The fastest of many single measurements is the luckiest: medians of settings are compared.
    group = max(_by_setting(known), key=_median_speed)
    about = f"{_name_group(group)}; median of {count(len(group), 'run')}"
    return Headline(f"Images per second on {data}", rate(_median_speed(group)), about)


def _median_speed(group: Sequence[Result]) -> float:
    return statistics.median(result.images_per_sec or 0.0 for result in group)


def _soonest(data: str, results: Sequence[Result]) -> Headline | None:
    known = [result for result in results if result.target is not None]
    if not known:
        return None
    # Times to different targets cannot be compared.
    target = Counter(result.target for result in known).most_common(1)[0][0]
    known = [result for result in known if result.target == target]
    title = f"Time to accuracy above {target:g} on {data}"
    group = min(_by_setting(known), key=_median_time)
    if math.isinf(_median_time(group)):
        reached = sum(math.isfinite(result.time) for result in known)
        return Headline(title, "not reached", f"{reached} of {count(len(known), 'run')} reached it")
    times = sorted(result.time for result in group if math.isfinite(result.time))
    about = f"{_name_group(group)}; median, {len(times)} of {count(len(group), 'run')} reached it"
    if len(times) > 1:
        about += f", from {seconds(times[0])} to {seconds(times[-1])}"
    return Headline(title, seconds(_median_time(group)), about)


def _median_time(group: Sequence[Result]) -> float:
    return statistics.median_low(result.time for result in group)


def _by_setting(results: Sequence[Result]) -> list[list[Result]]:
    """Group the results that differ in seed only."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.setting, []).append(result)
    return list(groups.values())


def _name_group(group: Sequence[Result]) -> str:
    return group[0].name + (f" and {len(group) - 1} more" if len(group) > 1 else "")


# Sweeps and searches


def _sweep_section(sweep: SweepRecord) -> Section:
    experiment = sweep.experiment
    failed = [(str(row["name"]), str(row["error"] or "no reason")) for row in sweep.failed]
    warning = shared_cores_warning(dict(sweep.machine), sweep.done)
    section = Section(
        title=f"{experiment.kind.capitalize()}: {sweep.name}",
        lead=f"{count(len(sweep.done), 'point')} finished, {len(failed)} failed. {warning or ''}",
    )
    if sweep.done:
        summary = experiment.summarize(sweep.done)
        section.tables.append(experiment.table(summary, sweep.settings))
        figure = sweep_figure(sweep, summary)
        section.figures += [figure] if figure.charts else []
    if failed:
        section.tables.append(_reasons("Points that failed", failed))
    return section


def sweep_figure(sweep: SweepRecord, summary: Sequence[Row]) -> Figure:
    """Draw the results of a sweep, with a line for each setting besides the horizontal axis.

    Args:
        sweep: The sweep.
        summary: The results of its settings.
    """
    experiment = sweep.experiment
    axis, title = experiment.axis
    others = [name for name in experiment.setting if name not in (axis, "batch_size")]
    lines: dict[str, list[Row]] = {}
    for name, row in zip(name_series(summary, others), summary, strict=True):
        lines.setdefault(name, []).append(row)

    def draw_line(name: str, column: str) -> Series:
        rows = sorted(lines[name], key=lambda row: float(row[axis]))
        spreads = [(row[axis], row[column]) for row in rows if row[column] is not None]
        return Series(name, [Point(x, s.median, s.low, s.high) for x, s in spreads])

    charts = [
        Chart(
            title=heading,
            axis=title,
            series=[draw_line(name, column) for name in lines],
            log_x=axis != "replicas",
            ticks_at_values=True,
            from_zero=column != "accuracy",
        )
        for column, heading in experiment.charts.items()
    ]
    shown = [chart for chart in charts if any(series.drawn for series in chart.series)]
    return Figure(caption="Points: medians; bars: minimum to maximum.", charts=shown)


def name_series(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Name each row after the columns whose values differ.

    Example:
        >>> name_series([{"replicas": 1, "lr_rule": "sqrt"}, {"replicas": 2, "lr_rule": "sqrt"}],
        ...     ["lr_rule", "replicas"])
        ['replicas 1', 'replicas 2']
    """
    varied = [name for name in columns if len({row[name] for row in rows}) > 1]
    return [
        ", ".join(f"{name.replace('_', ' ')} {setting(row[name])}" for name in varied) or "measured"
        for row in rows
    ]


def _search_section(record: SearchRecord) -> Section:
    search = record.search
    failed = [(row["name"], str(row["error"])) for row in record.failed]
    tables = [trials_table(record.rows, search)] if record.rows else []
    if failed:
        tables.append(_reasons("Trials that failed", failed))
    goal = "highest" if search.direction == "max" else "lowest"
    kind = f"{search.tuner.capitalize()} search of {_searched_model(search)}"
    done = f"{count(len(record.ranked), 'trial')} completed, {len(failed)} failed"
    return Section(
        title=f"Search: {record.name}",
        lead=f"{kind} for the {goal} {search.objective}: {done}.",
        tables=tables,
        figures=[search_figure(record)] if record.ranked else [],
    )


def _searched_model(search: Search) -> str:
    if SIZES & set(search.space or ()):
        return NETWORKS[search.config.network].title
    return model_name(search.config.to_dict())


def search_figure(record: SearchRecord) -> Figure:
    """Draw the scores by trial, then by each hyperparameter that varied."""
    search = record.search
    trials = [(at, row) for at, row in enumerate(record.rows, 1) if row["status"] == "done"]
    missed = [row["reached"] is False for _, row in trials]

    def draw_chart(axis: str, x: Sequence[float | str], more: Sequence[Series] = ()) -> Chart:
        points = [Point(value, row["score"]) for value, (_, row) in zip(x, trials, strict=True)]
        series = {"trial": points}
        if any(missed):
            pairs = list(zip(points, missed, strict=True))
            series["trial"] = [point for point, is_missed in pairs if not is_missed]
            series["missed the target"] = [point for point, is_missed in pairs if is_missed]
        part = (search.space or {}).get(axis)
        return Chart(
            title=search.objective,
            axis=axis,
            series=[*(Series(name, own, "markers") for name, own in series.items()), *more],
            log_x=isinstance(part, Mapping) and "log" in str(part.get("sampling")),
            # Penalties are so much larger than scores that they would hide how these differ.
            log_y=any(missed),
            ticks_at_values=isinstance(part, list),
        )

    numbers = [number for number, _ in trials]
    better = max if search.direction == "max" else min
    best = itertools.accumulate((row["score"] for _, row in trials), better)
    charts = [
        draw_chart(
            "Trial", numbers, [Series("best so far", list(map(Point, numbers, best)), "line")]
        )
    ]
    for name in search.space or ():
        values = [_number_or_text(row["values"][name]) for _, row in trials]
        if len(set(values)) > 1:
            charts.append(draw_chart(name, values))
    caption = "One point per trial."
    if any(missed):
        caption += " A trial that missed the target counts as ten times the time budget or more."
    return Figure(caption=caption, charts=charts)


def _number_or_text(value: object) -> float | str:
    number = None if isinstance(value, bool) else finite(value)
    return str(value) if number is None else number


# Runs

_BY_EPOCH = {
    "val_accuracy": "Validation accuracy",
    "val_loss": "Validation loss",
    "accuracy": "Training accuracy",
    "loss": "Training loss",
    "images_per_sec": "Images per second",
    "learning_rate": "Learning rate",
    "batch_norm_gap": "Batch norm: moving statistics, batch",
    "batch_norm_replica_gap": "Batch norm: replicas, replica 0",
}
_FROM_ZERO = {"images_per_sec", "learning_rate", "batch_norm_gap", "batch_norm_replica_gap"}


def _runs_section(data: str, runs: Sequence[RunRecord]) -> Section:
    shared = (
        "Replicas with shared cores are logical CPUs of one processor: their speed shows no"
        " speed-up, only what several replicas cost besides their computing."
    )
    return Section(
        title=f"Runs on {data}",
        lead=shared if any(run.shares_cores for run in runs) else "",
        tables=[runs_table(runs)],
        figures=learning_curves(runs),
    )


def learning_curves(runs: Sequence[RunRecord]) -> list[Figure]:
    """Draw each logged column by epoch, and the validation accuracy by seconds, if any was logged.

    Args:
        runs: Runs, each with a name of its own.
    """

    def draw_chart(column: str, x: str, axis: str) -> Chart:
        series = [
            Series(
                run.name,
                [
                    Point(place, value)
                    for row in run.epochs
                    if (place := row.get(x)) is not None and (value := row.get(column)) is not None
                ],
            )
            for run in runs
        ]
        is_from_zero = column in _FROM_ZERO
        return Chart(title=_BY_EPOCH[column], axis=axis, series=series, from_zero=is_from_zero)

    columns = [name for name in _BY_EPOCH if any(run.logged(name) for run in runs)]
    charts = [draw_chart(column, "epoch", "Epoch") for column in columns]
    if "val_accuracy" in columns:
        charts.insert(1, draw_chart("val_accuracy", "seconds", "Seconds of training"))
    caption = "One line per run, one point per epoch. Other seeds give other lines."
    return [Figure(caption=caption, charts=charts)] if charts else []


def runs_table(runs: Sequence[RunRecord]) -> ResultsTable:
    """Make a table of runs, a line each: results, then the settings that differ."""
    settings = compare_settings(runs)
    return ResultsTable(
        title="Results",
        columns=[*_COLUMNS, *(settings[0] if settings else ()), "Folder"],
        rows=[
            [
                *(text(run) for text in _COLUMNS.values()),
                *row.values(),
                sanitize_text(str(run.path)),
            ]
            for run, row in zip(runs, settings, strict=True)
        ],
        note="Images/s: median of the epochs after the first, which includes the tracing of the"
        " step. Time to target: the first epoch of those in a row that beat the run's own target.",
    )


def _speed(run: RunRecord) -> str:
    return rate(run.images_per_sec) + (" (first epoch)" if run.rates and not run.is_warm else "")


def _time_to_target(run: RunRecord) -> str:
    met = run.fact("met_seconds")
    if met is not None:
        return seconds(met)
    return "not reached" if run.logged("val_accuracy") else MISSING


def _replicas(run: RunRecord) -> str:
    cores = ", shared cores" if run.shares_cores else ""
    return f"{setting(run.fact('replicas'))}{run.of_workers}{cores}"


_COLUMNS: dict[str, Callable[[RunRecord], str]] = {
    "Run": lambda run: run.name,
    "Best val. accuracy": lambda run: accuracy(run.best[0] if run.best else None),
    "Images/s": _speed,
    "Time to target": _time_to_target,
    "Total time": lambda run: seconds(run.fact("seconds")),
    "Epochs": lambda run: f"{len(run.epochs):,}",
    "Status": lambda run: run.status.detail,
    "Replicas": _replicas,
    "Global batch": lambda run: setting(run.fact("global_batch")),
}
