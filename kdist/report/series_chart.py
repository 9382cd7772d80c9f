"""Measured points of several series with their medians, and lines fitted or expected."""

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt


def measured_at(column: str, title: str, values: Iterable[float], *, log: bool) -> alt.X:
    """A horizontal axis with a tick at every value that was measured, and room at both ends.

    Args:
        column: Of the data.
        title: The axis's.
        values: What was measured.
        log: Whether each doubling is as wide as the next.
    """
    if log:
        scale = alt.Scale(type="log", base=2, nice=False, padding=16)
    else:
        scale = alt.Scale(zero=False, nice=False, padding=16)
    axis = alt.Axis(values=sorted(set(values)), format=",.6~g")
    return alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)


def series_chart(
    ident: str,
    x: alt.X,
    column: str,
    label: str,
    series: Sequence[str],
    *,
    number: str = ",.6~g",
    zero: bool = True,
    dashed: str | None = None,
    joined: bool = False,
) -> Any:
    """A chart on the data `<ident>-points` and `<ident>-medians`; a click on the legend picks.

    Args:
        ident: The figure's.
        x: The horizontal channel.
        column: Of the vertical axis.
        label: Its title.
        series: The names in the column `series`, in the order of their colours.
        number: Format of its numbers.
        zero: Whether it begins at 0.
        dashed: Ending of the data's name, `<ident>-<dashed>`, of a dashed line for each series.
        joined: Whether a line joins the medians.
    """
    picked = alt.selection_point(name="picked", fields=["series"], bind="legend")
    legend = alt.Legend(symbolOpacity=1) if len(series) > 1 else None
    colour = alt.Color("series:N", title=None, legend=legend, scale=alt.Scale(domain=list(series)))
    y = alt.Y(f"{column}:Q", title=label, scale=alt.Scale(zero=zero), axis=alt.Axis(format=number))
    tooltip = [
        *([alt.Tooltip("series:N", title="Series")] if len(series) > 1 else []),
        alt.Tooltip(x.shorthand, title=str(x.title)),
        alt.Tooltip(f"{column}:Q", title=label, format=",.5~g"),
    ]

    def layer(part: str) -> alt.Chart:
        chart = alt.Chart(alt.NamedData(name=f"{ident}-{part}"))
        return chart.encode(x=x, y=y, color=colour, tooltip=tooltip)

    layers = [
        layer("points")
        .mark_point(filled=True, size=40)
        .encode(opacity=alt.when(picked).then(alt.value(0.4)).otherwise(alt.value(0.05))),
    ]
    strong = alt.when(picked).then(alt.value(1)).otherwise(alt.value(0.1))
    if dashed:
        line = layer(dashed).mark_line(strokeDash=[6, 4], strokeWidth=1.5)
        layers.append(line.encode(opacity=strong))
    middle = layer("medians")
    if joined:
        layers.append(middle.mark_line().encode(opacity=strong))
    layers.append(middle.mark_point(filled=True, size=90).encode(opacity=strong))
    return alt.layer(*layers).add_params(picked).properties(height=300)
