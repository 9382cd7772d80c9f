"""`Figure`: a chart with its words, for a page and as PNG."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from .style import config

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
