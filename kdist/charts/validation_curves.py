"""The validation accuracy of a sweep's runs over time, setting by setting."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..analysis.groups import Row
from ..runs.run_record import RunRecord
from .figure import Figure, Figures, Variant
from .reference_line import ReferenceLine


def validation_curves(
    ident: str,
    name: str,
    settings: Mapping[str, Sequence[Row]],
    runs: Mapping[str, RunRecord],
    *,
    target: float | None,
) -> Figures:
    """The validation accuracy over seconds, a view for each setting, a line for each seed.

    Args:
        ident: The figure's; its data are `<ident>-epochs`.
        name: Of the sweep.
        settings: The rows of each setting, by its name.
        runs: The run folders by the name of their point; settings without any are not drawn.
        target: The accuracy that was aimed at.
    """
    epochs: dict[str, list[dict[str, Any]]] = {}
    for number, (label, rows) in enumerate(settings.items()):
        curve = [
            {"setting": number, "seed": row["seed"]}
            | {column: epoch.get(column) for column in ("seconds", "val_accuracy")}
            for row in rows
            if row["name"] in runs
            for epoch in runs[row["name"]].epochs
        ]
        if any(row["val_accuracy"] is not None for row in curve):
            epochs[label] = curve
    data = [row for rows in epochs.values() for row in rows]
    if not data:
        return [], {}
    latest = max(row["seconds"] or 0.0 for row in data)
    heights = [row["val_accuracy"] for row in data if row["val_accuracy"] is not None]
    heights += [] if target is None else [target]
    figure = Figure(
        id=ident,
        title="Validation accuracy over time",
        of=name,
        caption="One line per seed, one point per epoch.",
        alt=f"Line charts of the validation accuracy over seconds, of {len(epochs)} settings.",
        variants=[
            Variant(
                label=label[:1].upper() + label[1:],
                chart=_curves(
                    f"{ident}-epochs",
                    rows[0]["setting"],
                    x=[0, latest],
                    y=[min(heights), max(heights)],
                    target=target,
                ),
            )
            for label, rows in epochs.items()
        ],
        columns=3,
    )
    return [figure], {f"{ident}-epochs": data}


def _curves(
    data: str,
    setting: int,
    *,
    x: Sequence[float],
    y: Sequence[float],
    target: float | None,
) -> Any:
    height = alt.Y(
        "val_accuracy:Q",
        title="Validation accuracy",
        scale=alt.Scale(domain=list(y), zero=False, nice=True),
        axis=alt.Axis(format=".3~f"),
    )
    lines = (
        alt.Chart(alt.NamedData(name=data))
        .transform_filter(f"datum.setting === {setting}")
        .mark_line(point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("seconds:Q", title="Seconds of training", scale=alt.Scale(domain=list(x))),
            y=height,
            color=alt.Color("seed:N", legend=None),
            tooltip=[
                alt.Tooltip("seed:N", title="Seed"),
                alt.Tooltip("seconds:Q", title="Seconds", format=",.1f"),
                alt.Tooltip("val_accuracy:Q", title="Validation accuracy", format=".4f"),
            ],
        )
    )
    line = ReferenceLine.of_target(target)
    return alt.layer(*(line.layers() if line else []), lines).properties(height=300)
