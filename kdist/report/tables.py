"""The report's tables, as text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .accuracy_figures import group_time
from .inputs import LeftOut
from .run_record import RunRecord
from .scaling_figures import bases
from .settings_diff import differing, run_settings
from .speed_figures import round_fits, series_fit
from .sweep_record import Group, SweepRecord
from .typed_numbers import TypedNumbers
from .wording import NOTHING, accuracy, rate, seconds

# Up to so many runs stand side by side; more stand below each other.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its words.
        kind: `""`, `"number"`, `"words"` (may be long), `"changed"` (differs from the baseline) or
            `"run"`.
    """

    text: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        columns: The heading.
        rows: The cells, each row as long as the heading.
        note: A sentence below it.
    """

    title: str
    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def _heading(words: str, *, after: int = 1) -> list[Cell]:
    """The names between semicolons; those after the first are of numbers."""
    names = words.split("; ")
    return [Cell(name, "number" if at >= after else "") for at, name in enumerate(names)]


def runs_table(runs: Sequence[RunRecord]) -> Table:
    """What was run and what it came to, a line each."""
    rows = []
    for run in runs:
        numbers = (
            f"{run.fact('replicas') or 0:,.0f}",
            f"{run.fact('global_batch') or 0:,.0f}",
            f"{run.fact('learning_rate') or 0:g}",
            f"{len(run.epochs):,}",
            accuracy(run.best[0] if run.best else None),
            accuracy(run.fact("val_accuracy")),
            rate(run.images_per_sec),
            seconds(run.met.seconds) if run.met else "not reached",
            seconds(run.fact("seconds")),
        )
        about = [
            Cell(run.name, "run"),
            Cell(_model(run)),
            Cell(str(run.summary.get("data", NOTHING))),
        ]
        about.append(Cell("interrupted" if run.summary.get("interrupted") else "complete"))
        rows.append([*about, *(Cell(number, "number") for number in numbers)])
    return Table(
        title="Runs",
        columns=_heading(
            "Run; Model; Data; Training; Replicas; Global batch; Learning rate; Epochs;"
            " Best val. accuracy; Last; Images/s; Time to target; Total time",
            after=4,
        ),
        rows=rows,
        note="Images/s: median of the epochs after the first. Time to target: the first epoch of"
        " those in a row that beat the run's own target.",
    )


def _model(run: RunRecord) -> str:
    depth, width = run.settings.get("depth"), run.settings.get("width")
    optimizer = run.settings.get("optimizer", "")
    return f"WRN-{depth}-{width}, {optimizer}" if depth and width else str(optimizer)


def diff_table(runs: Sequence[RunRecord], baseline: RunRecord) -> Table | None:
    """The settings that differ, those unlike the baseline's marked; `None` where none do."""
    ordered = [baseline, *(run for run in runs if run is not baseline)]
    settings = [run_settings(run) for run in ordered]
    names = differing(settings)
    if not names:
        return None
    heads = [Cell(baseline.name, "run"), *(Cell(run.name, "run") for run in ordered[1:])]
    columns = [
        [Cell(one.get(name, NOTHING), "changed" if one.get(name) != settings[0].get(name) else "")]
        for name in names
        for one in settings
    ]
    cells = [cell for (cell,) in columns]
    grid = [cells[at : at + len(ordered)] for at in range(0, len(cells), len(ordered))]
    if len(ordered) <= _SIDE_BY_SIDE:
        head = [Cell("Setting"), *heads]
        rows = [[Cell(name), *line] for name, line in zip(names, grid, strict=True)]
    else:
        head = [Cell("Run"), *(Cell(name) for name in names)]
        rows = [[run, *line] for run, line in zip(heads, zip(*grid, strict=True), strict=True)]
    return Table(
        title="Where settings differ",
        columns=head,
        rows=rows,
        note=f"Baseline: {baseline.name}. Values unlike the baseline's are marked.",
    )


def sweep_table(sweep: SweepRecord) -> Table:
    """A line for each setting of a sweep, medians over seeds or rounds."""
    one_replica = bases(sweep.groups) if sweep.kind == "scaling" else {}
    words = "Series; Batch a replica; Replicas; Global batch; Points; Images/s; Least; Most"
    words += {
        "throughput": "; Milliseconds a step",
        "scaling": "; Share of the ideal",
        "accuracy": "; Best val. accuracy; Least accuracy; Time to target; 95 % interval;"
        " Got there; Noise scale",
    }[sweep.kind]
    rows = []
    for group in sweep.groups:
        speeds, speed = group.values("images_per_sec"), group.median("images_per_sec")
        least, most = group.values("images_per_sec_low"), group.values("images_per_sec_high")
        numbers = [f"{n:,.0f}" for n in (group.batch_size, group.replicas, group.global_batch)]
        numbers += [f"{len(group.rows):,}", rate(speed)]
        numbers.append(rate(min([*speeds, *least], default=None)))
        numbers.append(rate(max([*speeds, *most], default=None)))
        if sweep.kind == "throughput":
            numbers.append(f"{1000 * group.images_per_step / speed:.3g}" if speed else NOTHING)
        elif sweep.kind == "scaling":
            ideal = one_replica.get(group.series, 0.0) * group.replicas
            numbers.append(f"{speed / ideal:.0%}" if speed and ideal else NOTHING)
        else:
            found = group.values("best_val_accuracy")
            time = group_time(group)
            numbers += [accuracy(group.median("best_val_accuracy"))]
            numbers += [accuracy(min(found, default=None)), seconds(time.median if time else None)]
            ends = f"{seconds(time.low)} to {seconds(time.high)}" if time else NOTHING
            numbers += [ends, f"{time.reached} of {time.runs}" if time else NOTHING]
            numbers.append(rate(group.median("noise_scale")))
        rows.append([Cell(group.series), *(Cell(number, "number") for number in numbers)])
    note = "Medians over the points of a setting, which differ in seed or round."
    return Table(title="Results", columns=_heading(words), rows=rows, note=note)


def fit_table(points: Sequence[Group]) -> Table | None:
    """The fitted step time of each series; `None` where no series has two batch sizes."""
    rows = []
    for series in dict.fromkeys(group.series for group in points):
        groups = [group for group in points if group.series == series]
        fit = series_fit(groups)
        if fit is not None:
            replicas, several = groups[0].replicas, round_fits(groups)
            numbers = (
                _among([1000 * one.overhead_seconds for one in (fit, *several)], "{:.3g}".format),
                _among([one.images_per_sec for one in (fit, *several)], rate),
                _among(
                    [one.batch_of_diminishing_returns() / replicas for one in (fit, *several)],
                    "{:,.0f}".format,
                ),
            )
            rows.append([Cell(series), *(Cell(number, "number") for number in numbers)])
    if not rows:
        return None
    words = "Series; Overhead, milliseconds a step; Images/s at most; Batch a replica where"
    return Table(
        title="Fitted step time",
        columns=_heading(f"{words} doubling gains under 5 %"),
        rows=rows,
        note="seconds = overhead + images / rate, by least squares of relative errors; in brackets"
        " the least and most of fits to single rounds.",
    )


def _among(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The first value, and the ends of the others where there are two or more."""
    of_all, *others = values
    ends = f" ({form(min(others))} to {form(max(others))})" if len(others) > 1 else ""
    return form(of_all) + ends


def failed_table(rows: Sequence[Mapping[str, object]]) -> Table | None:
    """The points that failed and why; `None` where none did."""
    if not rows:
        return None
    cells = [
        [Cell(str(row["name"])), Cell(str(row["error"] or "no reason told"), "words")]
        for row in rows
    ]
    return Table(title="Points that failed", columns=_heading("Point; Error", after=2), rows=cells)


def typed_table(typed: TypedNumbers) -> Table:
    """The numbers as they were typed in."""
    rows = [
        [
            Cell(f"{row['batch_size']:,g}"),
            Cell(f"{row['replicas']:,g}", "number"),
            Cell(rate(row["images_per_sec"]), "number"),
        ]
        for row in typed.rows
    ]
    columns = _heading("Batch a replica; Replicas; Images/s")
    return Table(title="Numbers", columns=columns, rows=rows)


def left_out_table(left_out: Sequence[LeftOut]) -> Table:
    """What the report does not show, and why."""
    rows = [[Cell(one.path), Cell(one.reason, "words")] for one in left_out]
    return Table(title="Left out", columns=_heading("Folder or file; Why", after=2), rows=rows)
