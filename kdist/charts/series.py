"""Charts of several series at measured values: medians with bars from minimum to maximum."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ..runs.text import count
from .figure import whole_number_axis

# The part of the axis by which series stand beside each other, so that no bar hides another.
_BESIDE = 0.015

_OUTCOMES = ("reached", "not reached")
_SHAPES = ("circle", "triangle-up")


@dataclass(frozen=True, kw_only=True)
class MeasuredAxis:
    """A horizontal axis with a tick at every value that was measured, and room at both ends.

    Attributes:
        column: Of the data; the place of a value is in the column `<column>_at`.
        title: The axis's, with the unit.
        values: What was measured, of all series.
        series: Their names, in the order of their colours.
        log: Whether each doubling is as wide as the next.
    """

    column: str
    title: str
    values: Sequence[float]
    series: Sequence[str]
    log: bool

    def place(self, value: float, series: str) -> dict[str, float]:
        """Return the value and where it is drawn: beside the same value of other series."""
        shift = _BESIDE * (self.series.index(series) - (len(self.series) - 1) / 2)
        low, high = min(self.values), max(self.values)
        if self.log:
            at = value * (high / low if high > low else 2) ** shift
        else:
            at = value + (high - low or 1) * shift
        return {self.column: value, f"{self.column}_at": at}

    def channel(self) -> alt.X:
        """Return the axis as an Altair channel."""
        if self.log:
            scale = alt.Scale(type="log", base=2, nice=False, padding=16)
        else:
            scale = alt.Scale(zero=False, nice=False, padding=16)
        axis = alt.Axis(values=sorted(set(self.values)), format=",.6~g")
        return alt.X(f"{self.column}_at:Q", title=self.title, scale=scale, axis=axis)

    @property
    def tooltip(self) -> alt.Tooltip:
        """The tooltip with the value that was measured."""
        return alt.Tooltip(f"{self.column}:Q", title=self.title)


def series_names(settings: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Name the series of each setting after the columns whose values differ.

    Example:
        >>> series_names([{"replicas": 1, "lr_rule": "sqrt"}, {"replicas": 2, "lr_rule": "sqrt"}],
        ...     ["lr_rule", "replicas"])
        ['1 replica', '2 replicas']
    """
    varied = [name for name in columns if len({one[name] for one in settings}) > 1]
    return [
        ", ".join(_in_words(name, one[name]) for name in varied) or "measured" for one in settings
    ]


def _in_words(column: str, value: Any) -> str:
    if column == "replicas":
        return count(value, "replica")
    words = {
        "mode": "{} scaling",
        "lr_rule": "rule {}",
        "batch_size": "batch {}",
        "seed": "seed {}",
    }
    return words.get(column, "{}").format(value)


def with_ends(
    column: str, spread: Mapping[str, float | None] | None, factor: float = 1.0
) -> dict[str, float | None]:
    """Return a spread as columns: `<column>`, `<column>_low` and `<column>_high`."""
    found = {} if spread is None else spread
    named = (("median", column), ("low", f"{column}_low"), ("high", f"{column}_high"))
    values = {name: found.get(key) for key, name in named}
    return {
        name: None if value is None or not math.isfinite(value) else value * factor
        for name, value in values.items()
    }


def series_chart(
    ident: str,
    axis: MeasuredAxis,
    column: str,
    label: str,
    medians: Sequence[Mapping[str, Any]],
    *,
    number: str = ",.6~g",
    zero: bool = True,
    points: bool = False,
    outcomes: bool = False,
    dashed: str | None = None,
    joined: bool = False,
    mark: tuple[float, str] | None = None,
) -> Any:
    """Draw the data `<ident>-medians`; a click on the legend highlights a series.

    Args:
        ident: What the names of the data begin with.
        axis: The horizontal axis.
        column: Of the vertical axis; bars go from `<column>_low` to `<column>_high`.
        label: Its title, with the unit.
        medians: The rows of the data `<ident>-medians`.
        number: Format of its numbers; `"d"` for whole numbers.
        zero: Whether it begins at 0.
        points: Whether there are single measurements, `<ident>-points`.
        outcomes: Whether these have a column `outcome`, `"reached"` or `"not reached"`.
        dashed: Ending of the data's name, `<ident>-<dashed>`, of a dashed line for each series.
        joined: Whether a line joins the medians.
        mark: A value of the horizontal axis and what is written beside a line there.
    """
    picked = alt.selection_point(name=f"picked_{column}", fields=["series"], bind="legend")
    strong = alt.when(picked).then(alt.value(1)).otherwise(alt.value(0.1))
    faint = alt.when(picked).then(alt.value(0.4)).otherwise(alt.value(0.05))
    ticks = whole_number_axis() if number == "d" else alt.Axis(format=number)
    y = alt.Y(f"{column}:Q", title=label, scale=alt.Scale(zero=zero), axis=ticks)
    name = [alt.Tooltip("series:N", title="Series")] if len(axis.series) > 1 else []
    tooltip = [*name, axis.tooltip, alt.Tooltip(f"{column}:Q", title=label, format=",.5~g")]

    def layer(part: str) -> alt.Chart:
        chart = alt.Chart(alt.NamedData(name=f"{ident}-{part}"))
        return chart.encode(x=axis.channel(), y=y, color=_colour(axis.series), tooltip=tooltip)

    layers = []
    if points:
        single = layer("points").mark_point(filled=True, size=40).encode(opacity=faint)
        layers.append(single.encode(shape=_outcome_shapes()) if outcomes else single)
    # Vega complains of a layer that has nothing to draw.
    ends = [end for end in ("low", "high") if any(_known(one, column, end) for one in medians)]
    known = any(one[column] is not None for one in medians)
    middle = layer("medians")
    middle.encoding.tooltip = [*tooltip, *(_end_tooltip(column, end) for end in ends)]
    for end in ends:
        bar = middle.transform_filter(f"isValid(datum.{column}_{end})").mark_rule(strokeWidth=3)
        layers.append(bar.encode(y2=f"{column}_{end}:Q", opacity=faint))
    if dashed:
        line = layer(dashed).mark_line(strokeDash=[6, 4], strokeWidth=1.5)
        layers.append(line.encode(opacity=strong))
    middle = middle.encode(opacity=strong)
    layers += [middle.mark_line()] if joined and known else []
    layers += [middle.mark_point(filled=True, size=90)] if known else []
    if mark:
        layers += _marked(axis, *mark)
    return alt.layer(*layers).add_params(picked).properties(height=300)


def _colour(series: Sequence[str]) -> alt.Color:
    legend = alt.Legend(symbolOpacity=1, symbolType="circle") if len(series) > 1 else None
    return alt.Color("series:N", title=None, legend=legend, scale=alt.Scale(domain=list(series)))


def _outcome_shapes() -> alt.Shape:
    scale = alt.Scale(domain=list(_OUTCOMES), range=list(_SHAPES))
    legend = alt.Legend(symbolOpacity=1, symbolFillColor="gray", symbolStrokeColor="gray")
    return alt.Shape("outcome:N", title=None, scale=scale, legend=legend)


def _end_tooltip(column: str, end: str) -> alt.Tooltip:
    title = {"low": "From", "high": "To"}[end]
    return alt.Tooltip(f"{column}_{end}:Q", title=title, format=",.5~g")


def _known(row: Mapping[str, Any], column: str, end: str) -> bool:
    return row[column] is not None and row[f"{column}_{end}"] is not None


def _marked(axis: MeasuredAxis, value: float, text: str) -> list[alt.Chart]:
    chart = alt.Chart(alt.InlineData(values=[{f"{axis.column}_at": value, "text": text}]))
    line = chart.mark_rule(strokeDash=[2, 3]).encode(x=axis.channel())
    # Towards the middle, so that the text is not cut off at the edge.
    to_left = value * value > min(axis.values) * max(axis.values)
    words = chart.mark_text(align="right" if to_left else "left", dx=-5 if to_left else 5)
    words = words.encode(x=axis.channel(), text="text:N")
    return [line, words.encode(y=alt.value(8))]
