"""What a sweep says of speed against the number of replicas."""

from collections.abc import Sequence
from typing import Any

from .figure import Figure, Variant
from .series_chart import measured_at, series_chart
from .sweep_record import FULL_STEP, Group
from .wording import rate


def bases(groups: Sequence[Group]) -> dict[str, float]:
    """The speed of one replica by series, which each series is measured by.

    Where a series does not begin at one replica, the full step's stands for it: one replica has no
    collectives to leave out. Where neither does, the smallest number does.
    """
    found: dict[str, float] = {}
    full: dict[str | None, tuple[float, float]] = {}
    for group in sorted(groups, key=lambda group: group.replicas):
        speed = group.median("images_per_sec")
        if speed is None:
            continue
        mode, variant = (group.rows[0].get(name) for name in ("mode", "variant"))
        own = group.replicas, speed / group.replicas
        if variant in (None, FULL_STEP):
            full.setdefault(mode, own)
        replicas, base = full.get(mode, own)
        found.setdefault(group.series, base if replicas < group.replicas else own[1])
    return found


def scaling_rows(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The data: `points` as measured, `medians`, and what is `ideal`."""
    one_replica = bases(groups)
    data: dict[str, list[dict[str, Any]]] = {"points": [], "medians": [], "ideal": []}
    for group in groups:
        rates = group.values("images_per_sec")
        if not rates:
            continue
        ideal = one_replica[group.series] * group.replicas
        data["points"] += [_row(group, one, ideal) for one in rates]
        data["medians"].append(_row(group, group.median("images_per_sec") or 0.0, ideal))
        data["ideal"].append(_row(group, ideal, ideal))
    return data


def scaling_figures(ident: str, name: str, groups: Sequence[Group]) -> list[Figure]:
    """Images a second against replicas, and the share of the ideal that this is."""
    if not any(group.values("images_per_sec") for group in groups):
        return []
    names = list(dict.fromkeys(group.series for group in groups))
    x = measured_at("replicas", "Replicas", [group.replicas for group in groups], log=False)
    variants = {row["variant"] for group in groups for row in group.rows}
    parts = (
        " Series without a part leave it out of the step: what they gain is what it takes."
        if len(variants) > 1
        else ""
    )
    views = (
        ("images_per_sec", "Images a second", ",.6~g"),
        ("efficiency", "Share of the ideal", ".0%"),
    )
    return [
        Figure(
            id=ident,
            title="Speed against replicas",
            of=name,
            caption="Faint points: each round. Line: medians. Dashed: ideal, as many times the"
            f" speed of one replica.{parts}",
            alt="Scatter chart of images a second against replicas. "
            + "; ".join(
                f"{group.series}, {group.replicas:.0f} replicas:"
                f" {rate(group.median('images_per_sec'))}"
                for group in groups[:12]
            ),
            variants=[
                Variant(
                    label=label,
                    chart=series_chart(
                        ident, x, column, label, names, number=number, dashed="ideal", joined=True
                    ),
                )
                for column, label, number in views
            ],
        )
    ]


def _row(group: Group, images_per_sec: float, ideal: float) -> dict[str, Any]:
    return {
        "series": group.series,
        "replicas": group.replicas,
        "images_per_sec": images_per_sec,
        "efficiency": images_per_sec / ideal,
    }
