"""The scores of a search's trials, in order and against each hyperparameter."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from ..runs.record import finite
from .figure import Figure, Figures, Variant, whole_number_axis

# Widest names of categories that stand upright below a chart, letters in all.
_UPRIGHT_LETTERS = 50
# With so few values of a number, each has a tick.
_FEW_VALUES = 7
COMPLETED, MISSED, FAILED = "trial", "missed the target", "failed"
"""How a trial ended."""
_BEST = "best so far"
_SHAPES = {COMPLETED: "circle", MISSED: "triangle-up", FAILED: "cross"}
# The third colour is a green, which would look like success.
_COLOURS = [COMPLETED, FAILED, "", MISSED]


@dataclass(frozen=True, kw_only=True)
class TrialPoint:
    """A trial as it is drawn.

    Attributes:
        number: Its place in the order in which trials began.
        outcome: `COMPLETED`, `MISSED` or `FAILED`.
        score: The value of the objective; `None` where it failed.
        values: Its hyperparameters.
    """

    number: int
    outcome: str
    score: float | None
    values: Mapping[str, Any]


def search_figure(
    ident: str,
    name: str,
    objective: str,
    trials: Sequence[TrialPoint],
    correlations: Mapping[str, float | None],
    *,
    direction: str,
    log: Sequence[str] = (),
) -> Figures:
    """The figure of a search: the trials in order, then each hyperparameter that varied.

    Args:
        ident: The figure's id, and the name of its data.
        name: What was searched, for titles.
        objective: The metric that the scores are of.
        trials: The trials that ended.
        correlations: The rank correlation of each hyperparameter with the score, where known.
        direction: `"max"` or `"min"`, what is better.
        log: The hyperparameters that were sampled on a logarithmic scale.
    """
    varied = [one for one in correlations if len({_text(t.values.get(one)) for t in trials}) > 1]
    # A hyperparameter's name may contain what Vega reads as a path: columns are numbered.
    columns = {one: f"value{number}" for number, one in enumerate(varied)}
    data = [
        {"trial": trial.number, "outcome": trial.outcome, "score": finite(trial.score), "best": top}
        | _by_column(trial, columns)
        for trial, top in zip(trials, _best_so_far(trials, direction), strict=True)
    ]
    outcomes = [one for one in _SHAPES if any(trial.outcome == one for trial in trials)]
    chart = _Chart(
        ident=ident,
        outcomes=outcomes,
        # Penalties are so much larger than scores that they would hide how these differ.
        y=alt.Y(
            "score:Q",
            title=objective,
            scale=alt.Scale(type="log") if MISSED in outcomes else alt.Scale(zero=False),
        ),
    )
    views = [Variant(label="Trials in order", chart=chart.in_order())]
    for one in varied:
        found = correlations[one]
        words = "" if found is None else f" (rank correlation {found:+.2f})"
        values = [row[columns[one]] for row in data if columns[one] in row]
        x = _axis(columns[one], one, values, log=one in log)
        views.append(Variant(label=f"{one}{words}", chart=chart.against(columns[one], x)))
    figure = Figure(
        id=ident,
        title=f"{objective} of the trials",
        of=name,
        caption=_caption(outcomes),
        alt=f"Charts of {objective} by trial and against {', '.join(varied) or 'nothing else'}.",
        variants=views,
        columns=3,
    )
    return [figure], {ident: data}


def _by_column(trial: TrialPoint, columns: Mapping[str, str]) -> dict[str, Any]:
    """The hyperparameters that the trial has, as columns of the data."""
    return {to: _plain(trial.values[name]) for name, to in columns.items() if name in trial.values}


def _caption(outcomes: Sequence[str]) -> str:
    words = "One point per trial."
    if MISSED in outcomes:
        words += " Triangle: missed the target, which counts as at least ten times the time budget."
    if FAILED in outcomes:
        words += " Cross at the lower edge: failed, no score."
    return (
        f"{words} Rank correlation: from -1 to 1 for numbers, from 0 to 1 for names. It looks at"
        " one hyperparameter at a time, so take it as a hint."
    )


def _best_so_far(trials: Sequence[TrialPoint], direction: str) -> list[float | None]:
    better = max if direction == "max" else min

    def best(so_far: float | None, score: float | None) -> float | None:
        known = [one for one in (so_far, score) if one is not None]
        return better(known) if known else None

    return list(itertools.accumulate((finite(trial.score) for trial in trials), best))


@dataclass(frozen=True, kw_only=True)
class _Chart:
    """The views of one search: points of the same colours and shapes."""

    ident: str
    outcomes: Sequence[str]
    y: alt.Y

    def in_order(self) -> Any:
        """Scores by trial, with the best so far."""
        x = alt.X(
            "trial:Q",
            title="Trials",
            axis=whole_number_axis(),
            scale=alt.Scale(zero=False, nice=False, padding=10),
        )
        best = (
            alt.Chart(alt.NamedData(name=self.ident))
            .transform_filter("isValid(datum.best)")
            .transform_calculate(series=f"'{_BEST}'")
            .mark_line(interpolate="step-after", color="gray")
            .encode(x=x, y=alt.Y("best:Q"), strokeDash=_best_dash())
        )
        return alt.layer(best, *self._points("trial", x, legend=True))

    def against(self, column: str, x: alt.X) -> Any:
        """Scores against a hyperparameter."""
        return alt.layer(*self._points(column, x, legend=False))

    def _points(self, column: str, x: alt.X, *, legend: bool) -> list[alt.Chart]:
        """The trials with a score, and those without at the lower edge."""
        shown = legend and len(self.outcomes) > 1
        key = alt.Legend(values=list(self.outcomes)) if shown else None
        shapes = [_SHAPES.get(one, "circle") for one in _COLOURS]
        colours = alt.Scale(domain=_COLOURS)
        base = (
            alt.Chart(alt.NamedData(name=self.ident))
            .transform_filter(f"isValid(datum.{column})")
            .mark_point(filled=True, size=60, opacity=0.8)
            .encode(
                x=x,
                color=alt.Color("outcome:N", title=None, scale=colours, legend=key),
                shape=alt.Shape(
                    "outcome:N",
                    title=None,
                    scale=alt.Scale(domain=_COLOURS, range=shapes),
                    legend=key,
                ),
                tooltip=[
                    alt.Tooltip("trial:Q", title="Trial"),
                    alt.Tooltip("score:Q", title="Score", format=",.5~g"),
                    alt.Tooltip("outcome:N", title="Outcome"),
                ],
            )
        )
        layers = [base.transform_filter("isValid(datum.score)").encode(y=self.y)]
        if FAILED in self.outcomes:
            failed = base.transform_filter(f"datum.outcome === '{FAILED}'")
            layers.append(failed.encode(y=alt.value("height")))
        return layers


def _best_dash() -> alt.StrokeDash:
    scale = alt.Scale(domain=[_BEST], range=[[1, 0]])
    return alt.StrokeDash("series:N", title=None, scale=scale)


def _axis(column: str, title: str, values: Sequence[Any], *, log: bool) -> alt.X:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        is_log = log and min(numbers) > 0
        scale = alt.Scale(type="log", padding=10) if is_log else alt.Scale(zero=False, padding=10)
        whole = all(value == int(value) for value in numbers)
        few = sorted(set(numbers)) if len(set(numbers)) <= _FEW_VALUES else None
        axis = alt.Axis(
            format=",.6~g",
            tickMinStep=1 if whole else alt.Undefined,
            values=alt.Undefined if few is None else few,
            labelOverlap=True,
        )
        return alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)
    names = {str(value) for value in values}
    upright = sum(map(len, names)) <= _UPRIGHT_LETTERS
    return alt.X(f"{column}:N", title=title, axis=alt.Axis(labelAngle=0 if upright else -40))


def _text(value: Any) -> str:
    return str(_plain(value))


def _plain(value: Any) -> Any:
    """A number as it is, anything else as text."""
    number = None if isinstance(value, bool) else finite(value)
    return str(value) if number is None else number
