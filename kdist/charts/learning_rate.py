"""The loss over the learning rates of a range test."""

import math
from collections.abc import Sequence

import altair as alt

from .figure import Figure, Figures, Variant

_ID = "learning-rate"
_KINDS = ("running average", "batch")


def learning_rate_figures(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    *,
    suggestion: float,
    steepest: float,
    of: str = "",
) -> Figures:
    """Draw a range test: the loss of each batch, their running average, and the suggestion.

    Args:
        rates: The learning rate of each step.
        losses: The loss of each step's batch.
        smoothed: Their running average.
        suggestion: The learning rate to use, marked by a line.
        steepest: The one at which the average falls fastest, marked by another.
        of: What was trained.
    """
    rows = [
        {"rate": rate, "loss": loss, "kind": kind}
        for kind, values in zip(_KINDS, (smoothed, losses), strict=True)
        for rate, loss in zip(rates, values, strict=True)
        if math.isfinite(loss)
    ]
    marks = [
        {"rate": suggestion, "text": f"suggested: {suggestion:.2g}"},
        {"rate": steepest, "text": f"steepest: {steepest:.2g}"},
    ]
    # A batch of an exploded loss would leave the rest a flat line.
    finite = [value for value in smoothed if math.isfinite(value)]
    top = max(finite[: max(len(finite) * 9 // 10, 1)], default=1.0)
    bottom = min((value for value in losses if math.isfinite(value)), default=0.0)
    room = 0.1 * (top - bottom or 1.0)
    x = alt.X(
        "rate:Q", title="Learning rate", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e")
    )
    y = alt.Y(
        "loss:Q",
        title="Loss",
        scale=alt.Scale(domain=[bottom - room, top + room], clamp=True, nice=False),
    )
    base = alt.Chart(alt.NamedData(name=_ID))
    average = base.transform_filter(f"datum.kind === '{_KINDS[0]}'").mark_line()
    batches = base.transform_filter(f"datum.kind === '{_KINDS[1]}'").mark_point(
        filled=True, size=12, opacity=0.4
    )
    lines = alt.Chart(alt.NamedData(name=f"{_ID}-marks")).encode(x=x)
    first, second = sorted(marks, key=lambda mark: float(str(mark["rate"])))
    chart = alt.layer(
        batches.encode(x=x, y=y),
        average.encode(x=x, y=y),
        lines.mark_rule(strokeDash=[2, 3]),
        # Apart, so that neither covers the other.
        lines.transform_filter(f"datum.text === '{first['text']}'")
        .mark_text(align="right", dx=-5)
        .encode(text="text:N", y=alt.value(10)),
        lines.transform_filter(f"datum.text === '{second['text']}'")
        .mark_text(align="left", dx=5)
        .encode(text="text:N", y=alt.value(10)),
    )
    figure = Figure(
        id=_ID,
        title="Learning rate range test",
        of=of,
        caption="Points: the loss of a batch, each with a higher learning rate. Line: its running"
        " average. Suggested: a tenth of the rate at the lowest average.",
        alt=f"Loss against the learning rate from {rates[0]:.2g} to {rates[-1]:.2g};"
        f" {marks[0]['text']}, {marks[1]['text']}.",
        variants=[Variant(label="Loss", chart=chart, column="loss")],
    )
    return [figure], {_ID: rows, f"{_ID}-marks": marks}
