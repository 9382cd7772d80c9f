"""What a sweep says of accuracy against the batch, and of the time to the target."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from ..sweep.time_to_target import TimeToTarget, time_to_target
from .figure import Figure, Variant
from .series_chart import measured_at, series_chart
from .sweep_record import Group
from .wording import accuracy, seconds


def group_time(group: Group) -> TimeToTarget | None:
    """The time to the target of a group's points; `None` where no point tells it."""
    durations, reached = [], []
    for row in group.rows:
        there = bool(row["reached_target"]) and row["seconds_to_target"] is not None
        duration = row["seconds_to_target"] if there else row["seconds"]
        if duration is not None and row["reached_target"] is not None:
            durations.append(duration)
            reached.append(there)
    return time_to_target(durations, reached) if durations else None


def accuracy_rows(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The data: `points`, `medians`, the times to the target as `times` and their `curves`."""
    data: dict[str, list[dict[str, Any]]] = {"points": [], "medians": [], "times": [], "curves": []}
    for group in groups:
        facts = {"series": group.series, "global_batch": group.global_batch}
        found = group.values("best_val_accuracy")
        data["points"] += [facts | {"accuracy": one} for one in found]
        if found:
            data["medians"].append(facts | {"accuracy": group.median("best_val_accuracy")})
        time = group_time(group)
        if time is None or not time.reached:
            continue
        data["times"].append(
            facts
            | {"seconds": time.median, "low": time.low, "high": time.high}
            | {"reached": f"{time.reached} of {time.runs}"}
        )
        label = _label(group, groups)
        for at, share in zip(time.curve.times, time.curve.share_not_yet, strict=True):
            data["curves"].append({"series": label, "seconds": at, "share": 1 - share})
    return data


def accuracy_figures(ident: str, name: str, groups: Sequence[Group]) -> list[Figure]:
    """Accuracy against the batch, time to the target, and the share that got there over time.

    Args:
        ident: Of the sweep; the data are `<ident>-points`, `-medians`, `-times` and `-curves`.
        name: The sweep's.
        groups: Its points.
    """
    names = list(dict.fromkeys(group.series for group in groups))
    batches = [group.global_batch for group in groups]
    x = measured_at("global_batch", "Global batch, images", batches, log=True)
    figures = []
    if any(group.values("best_val_accuracy") for group in groups):
        chart = series_chart(
            ident,
            x,
            "accuracy",
            "Best validation accuracy",
            names,
            number=".2f",
            zero=False,
            joined=True,
        )
        seeds = max(len(group.rows) for group in groups)
        figures.append(
            Figure(
                id=ident,
                title="Accuracy against the batch",
                of=name,
                caption=f"Faint points: the best epoch of each seed ({seeds} at most a setting)."
                " Line: their median. Where the clouds of two settings overlap, seeds alone may"
                " explain the difference.",
                alt="Scatter chart of the best validation accuracy against the global batch. "
                + "; ".join(
                    f"{group.series}, batch {group.global_batch:,.0f}:"
                    f" {accuracy(group.median('best_val_accuracy'))}"
                    for group in groups[:12]
                ),
                variants=[Variant(label="Best validation accuracy", chart=chart)],
            )
        )
    timed = [(group, group_time(group)) for group in groups]
    told = [(group, time) for group, time in timed if time is not None and time.reached]
    if told:
        words = "; ".join(
            f"{_label(group, groups)}: {seconds(time.median)}, {time.reached} of {time.runs}"
            for group, time in told[:12]
        )
        figures.append(
            Figure(
                id=f"{ident}-target",
                title="Time to the target",
                of=name,
                caption="Median with its 95 % interval, runs that never got there counted as"
                " such (Kaplan and Meier). A missing point: fewer than half of its runs got there."
                " No bar to a side: too few runs tell that end.",
                alt=f"Chart of seconds to the target accuracy. {words}.",
                variants=[
                    Variant(label="Against the batch", chart=_times(ident, x, names, told)),
                    Variant(label="Share there over time", chart=_curves(ident, told, groups)),
                ],
            )
        )
    return figures


def _times(
    ident: str, x: alt.X, names: Sequence[str], told: Sequence[tuple[Group, TimeToTarget]]
) -> Any:
    legend = alt.Legend() if len(names) > 1 else None
    base = alt.Chart(alt.NamedData(name=f"{ident}-times")).encode(
        x=x,
        color=alt.Color("series:N", title=None, legend=legend, scale=alt.Scale(domain=list(names))),
        tooltip=[
            alt.Tooltip("series:N", title="Series"),
            alt.Tooltip("global_batch:Q", title="Global batch"),
            alt.Tooltip("seconds:Q", title="Median, seconds", format=",.1f"),
            alt.Tooltip("low:Q", title="From", format=",.1f"),
            alt.Tooltip("high:Q", title="To", format=",.1f"),
            alt.Tooltip("reached:N", title="Got there"),
        ],
    )
    y = alt.Y("seconds:Q", title="Seconds to the target", scale=alt.Scale(zero=True))
    middle = base.mark_point(filled=True, size=110, opacity=1).encode(y=y)
    bars = [
        base.transform_filter(f"datum.seconds !== null && datum.{end} !== null")
        .mark_rule(strokeWidth=3, opacity=0.45)
        .encode(y="seconds:Q", y2=f"{end}:Q")
        for end in ("low", "high")
        if any(time.median is not None and getattr(time, end) is not None for _, time in told)
    ]
    return alt.layer(middle, *bars).properties(height=300)


def _curves(ident: str, told: Sequence[tuple[Group, TimeToTarget]], groups: Sequence[Group]) -> Any:
    names = [_label(group, groups) for group, _ in told]
    return (
        alt.Chart(alt.NamedData(name=f"{ident}-curves"))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("seconds:Q", title="Seconds of training"),
            y=alt.Y(
                "share:Q",
                title="Runs that are there",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%"),
            ),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=names)),
            tooltip=[
                alt.Tooltip("series:N", title="Setting"),
                alt.Tooltip("seconds:Q", format=",.1f"),
            ],
        )
        .properties(height=300)
    )


def _label(group: Group, groups: Sequence[Group]) -> str:
    batch = f"batch {group.global_batch:,.0f}"
    alone = len({one.series for one in groups}) == 1
    return batch if alone else f"{batch}, {group.series}"
