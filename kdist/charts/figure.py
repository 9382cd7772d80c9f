"""`Figure`: a chart with its words, for a page and as PNG; the style that all charts share."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

# Ten colours that differ (by 20 in CIEDE2000), to readers with red-green blindness too (by 9 in the
# simulation of Machado et al. 2009), and stand out from the page (contrast of 3 to 1, WCAG 1.4.11).
# They began as those of Okabe & Ito 2008, "Color Universal Design".
LIGHT = [
    *("#186cc9", "#d55e00", "#05805b", "#c44094", "#9d814a"),
    *("#079ece", "#5330d0", "#676a73", "#8b1819", "#0c2e4b"),
]
DARK = [
    *("#4696c3", "#ff8f47", "#2fcc9a", "#d1619f", "#f7cf3e"),
    *("#9ae0ff", "#9e8cff", "#aaacba", "#fb5d5e", "#f4f0e6"),
]

# Dashes of the first ten lines, of the next ten, and so on.
_DASHES: list[list[float]] = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

HIDDEN = "hidden"
"""The signal with the names of the runs that the reader hid."""


def config(*, dark: bool) -> dict[str, Any]:
    """Return the `config` of Vega-Lite for a light or a dark page."""
    ink, faint, line = (
        ("#e7e9ee", "#a4abb8", "#343a46") if dark else ("#1c2230", "#5a6272", "#e3e6eb")
    )
    return {
        "background": "transparent" if dark else "white",
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": DARK if dark else LIGHT},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": line,
            "labelColor": faint,
            "labelFontSize": 12,
            "labelLimit": 320,
            "labelPadding": 6,
            "titleColor": faint,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": faint},
        "legend": {
            "labelColor": ink,
            "labelFontSize": 12,
            "labelLimit": 260,
            "titleColor": faint,
            "titleFontWeight": "normal",
            "orient": "top",
            "direction": "horizontal",
            "columns": 3,
        },
        "title": {
            "color": ink,
            "fontSize": 15,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 12,
            "subtitleColor": faint,
            "subtitleFontSize": 12,
            "subtitlePadding": 6,
        },
        "line": {"strokeWidth": 2},
        "rule": {"color": faint},
        "text": {"color": faint, "fontSize": 12},
    }


def run_colour(names: Sequence[str], **options: Any) -> alt.Color:
    """Give each run a colour, the same in every chart.

    Args:
        names: The names of all runs, in the order of their colours.
        **options: Further options of the channel.
    """
    return alt.Color("run:N", scale=alt.Scale(domain=list(names)), title=None, **options)


def line_dash(
    field: str,
    names: Sequence[str],
    *,
    special: Mapping[str, Sequence[float]] | None = None,
    **options: Any,
) -> alt.StrokeDash:
    """Give names solid lines, and other dashes each time the colours repeat.

    Args:
        field: The column of the names.
        names: In the order of their colours.
        special: The dashes of names that have their own.
        **options: Further options of the channel.
    """
    own = special or {}
    dashes = [
        own.get(name, _DASHES[index // len(LIGHT) % len(_DASHES)])
        for index, name in enumerate(names)
    ]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash(f"{field}:N", scale=scale, title=None, **options)


def whole_number_axis() -> alt.Axis:
    """Return an axis whose labels are whole numbers, each once."""
    # With few values Vega places ticks at halves in spite of `tickMinStep`.
    return alt.Axis(format="d", tickMinStep=1, labelExpr="datum.value % 1 === 0 ? datum.label : ''")


def shown_runs(chart: alt.Chart) -> alt.Chart:
    """Return the chart without the runs that the reader hid."""
    return chart.transform_filter(f"indexof({HIDDEN}, datum.run) < 0")


def hidden_param() -> Any:
    """Return the signal `HIDDEN`, to add to the whole chart."""
    return alt.param(name=HIDDEN, value=[])


# Width and height of the drawing area of a PNG with one view, and of each of several; twice as many
# dots for screens of high resolution.
_WIDTH, _HEIGHT = 680, 340
_TILE_WIDTH, _TILE_HEIGHT = 440, 280
_SCALE = 2
# A letter of the caption is about so many pixels wide.
_LETTER = 6.2

Data = dict[str, list[dict[str, Any]]]
"""The rows of charts by the name of the data."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the views that a figure offers.

    Attributes:
        label: What the reader chooses it by.
        chart: An Altair chart whose data have names.
        column: Of the data, what is drawn: rows without a value there draw nothing.
    """

    label: str
    chart: Any
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart, or several views of the same.

    Attributes:
        id: Unique in the report; PNG files are named after it.
        title: Says what is drawn.
        of: What it is a chart of, for PNG files: on a page, the section says so.
        caption: How to read it, and how certain it is.
        alt: What it shows, in words.
        variants: The views, at least one.
        by_run: Whether the page's choice of runs filters it and replaces its legend.
        columns: How many views stand side by side in a picture of all of them.
    """

    id: str
    title: str
    caption: str
    alt: str
    variants: Sequence[Variant]
    by_run: bool = False
    of: str = ""
    columns: int = 2

    def files(self) -> list[str]:
        """Return the names of the PNG files, one for each view."""
        if len(self.variants) == 1:
            return [f"{self.id}.png"]
        return [f"{self.id}-{_slug(variant.label)}.png" for variant in self.variants]

    def page_specs(self) -> list[dict[str, Any]]:
        """Return Vega-Lite specifications that fill the width of the page."""
        specs = [variant.chart.to_dict() for variant in self.variants]
        for spec in specs:
            spec |= {"width": "container", "description": self.alt}
            spec["autosize"] = {"type": "fit-x", "contains": "padding"}
            spec["config"] = {"legend": {"disable": True}} if self.by_run else {}
        return specs

    def pngs(self, data: Mapping[str, Any]) -> dict[str, bytes]:
        """Render a PNG file for each view, with title and legend; returns their contents by name.

        Args:
            data: The rows by the name of the data.
        """
        files = {}
        for name, variant in zip(self.files(), self.variants, strict=True):
            title = self._title + (f", {variant.label}" if len(self.variants) > 1 else "")
            chart = variant.chart.properties(width=_WIDTH, height=_HEIGHT, title=title)
            files[name] = _png(chart, data)
        return files

    def png(self, data: Mapping[str, Any], *, note: str = "") -> bytes:
        """Render one PNG file with all views side by side, with title, caption and legends.

        Args:
            data: The rows by the name of the data.
            note: A sentence after the caption.
        """
        one = len(self.variants) == 1
        columns = min(self.columns, len(self.variants))
        width = _WIDTH if one else (_TILE_WIDTH + 70) * columns
        lines = textwrap.wrap(f"{self.caption} {note}".strip(), int(width / _LETTER))
        title = alt.TitleParams(self._title, subtitle=lines)
        if one:
            chart = self.variants[0].chart.properties(width=_WIDTH, height=_HEIGHT, title=title)
            return _png(chart, data)
        tiles = [
            variant.chart.properties(
                width=_TILE_WIDTH,
                height=_TILE_HEIGHT,
                title=alt.TitleParams(variant.label, fontSize=13, offset=8),
            )
            for variant in self.variants
        ]
        together = alt.concat(*tiles, columns=columns, title=title, spacing=30)
        # Each view has series of its own. Legends of different heights go below, so that titles
        # and axes stand in line.
        together = together.resolve_scale(
            color="independent", shape="independent", strokeDash="independent"
        )
        return _png(together, data, legend="bottom")

    @property
    def _title(self) -> str:
        return f"{self.of}: {self.title}" if self.of else self.title


Figures = tuple[list[Figure], Data]
"""Figures with the data that they name."""


def _png(chart: Any, data: Mapping[str, Any], *, legend: str = "top") -> bytes:
    style = config(dark=False)
    style["legend"] = {**style["legend"], "orient": legend}
    spec = chart.to_dict()
    spec["datasets"] = {**spec.get("datasets", {}), **data}
    spec |= {"padding": 20, "config": style}
    # Nothing is fetched: no base URL is allowed.
    return vl_convert.vegalite_to_png(spec, scale=_SCALE, allowed_base_urls=[])


def _slug(label: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in label.lower()).split())
