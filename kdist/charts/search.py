"""The scores of a search's trials, in order and against each hyperparameter."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..runs.run_record import finite
from .figure import Figure, Figures, Variant

# Widest names of categories that stand upright below a chart, letters in all.
_UPRIGHT_LETTERS = 50
# From so many times the smallest value on, an axis is logarithmic.
_WIDE = 20
_TRIAL, _BEST = "trial", "best so far"


def search_figure(
    ident: str,
    objective: str,
    scores: Sequence[float],
    values: Sequence[Mapping[str, Any]],
    correlations: Mapping[str, float | None],
    *,
    direction: str,
) -> Figures:
    """The figure of a search, a view for the trials in order and one for each hyperparameter.

    Args:
        ident: The figure's, and the name of its data.
        objective: What the scores are.
        scores: Of the completed trials, in the order in which they began.
        values: The hyperparameters of each.
        correlations: The rank correlation of each hyperparameter with the score, where known.
        direction: `"max"` or `"min"`, what is better.
    """
    best = itertools.accumulate(scores, max if direction == "max" else min)
    # A hyperparameter's name may hold what Vega reads as a path: columns are numbered.
    columns = {name: f"value{number}" for number, name in enumerate(correlations)}
    data = [
        {"trial": number, "score": finite(score), "best": finite(top)}
        | {column: _plain(trial.get(name)) for name, column in columns.items()}
        for number, (score, top, trial) in enumerate(zip(scores, best, values, strict=True), 1)
    ]
    views = [Variant(label="Trials in order", chart=_in_order(ident, objective))]
    for name, correlation in correlations.items():
        words = "" if correlation is None else f" (rank correlation {correlation:+.2f})"
        x = _axis(columns[name], name, [row[columns[name]] for row in data])
        views.append(Variant(label=f"{name}{words}", chart=_points(ident, objective).encode(x=x)))
    figure = Figure(
        id=ident,
        title=f"{objective} of the trials",
        caption="One point per completed trial. Rank correlation: from -1 to 1 of numbers, from 0"
        " to 1 of names; one hyperparameter at a time, so take it as a hint.",
        alt=f"Charts of {objective} by trial and against {', '.join(columns)}.",
        variants=views,
        columns=3,
    )
    return [figure], {ident: data}


def _points(ident: str, objective: str) -> Any:
    return (
        alt.Chart(alt.NamedData(name=ident))
        .transform_calculate(series=f"'{_TRIAL}'")
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            color=alt.Color("series:N", legend=None),
            y=alt.Y("score:Q", title=objective, scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("trial:Q", title="Trial"),
                alt.Tooltip("score:Q", title=objective, format=",.5~g"),
            ],
        )
    )


def _in_order(ident: str, objective: str) -> Any:
    x = alt.X(
        "trial:Q",
        title="Completed trials",
        axis=alt.Axis(format="d", tickMinStep=1),
        scale=alt.Scale(zero=False, padding=10),
    )
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=[_TRIAL, _BEST]))
    best = (
        alt.Chart(alt.NamedData(name=ident))
        .transform_calculate(series=f"'{_BEST}'")
        .mark_line(interpolate="step-after")
        .encode(x=x, y=alt.Y("best:Q", title=objective), color=colour)
    )
    return alt.layer(best, _points(ident, objective).encode(x=x, color=colour))


def _axis(column: str, title: str, values: Sequence[Any]) -> alt.X:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        wide = min(numbers) > 0 and max(numbers) > _WIDE * min(numbers)
        scale = alt.Scale(type="log" if wide else "linear", zero=False, padding=10)
        whole = all(value == int(value) for value in numbers)
        axis = alt.Axis(format="~g", tickMinStep=1 if whole else alt.Undefined)
        return alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)
    names = {str(value) for value in values}
    upright = sum(map(len, names)) <= _UPRIGHT_LETTERS
    return alt.X(f"{column}:N", title=title, axis=alt.Axis(labelAngle=0 if upright else -40))


def _plain(value: Any) -> Any:
    """A number as it is, anything else as its name."""
    number = finite(value)
    return str(value) if number is None else number
