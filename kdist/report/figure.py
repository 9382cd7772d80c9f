"""`Figure`: a chart of the report with its words, for the page and as PNG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vl_convert

from .chart_style import config

# Width and height of a PNG's drawing area; twice as many dots for screens of high resolution.
_WIDTH, _HEIGHT, _SCALE = 680, 340, 2


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One of the views that a figure offers.

    Attributes:
        label: What the reader chooses it by.
        chart: An Altair chart whose data have names.
    """

    label: str
    chart: Any


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart, or several views of the same.

    Attributes:
        id: Unique in the report; PNG files are named after it.
        title: Says what is drawn.
        of: Whose it is, where the page's section says so but a PNG file would not.
        caption: Says how sure it is, and how to read it.
        alt: What it shows, in words.
        variants: The views, at least one.
        by_run: Whether the page's choice of runs filters it and stands for its legend.
    """

    id: str
    title: str
    caption: str
    alt: str
    variants: Sequence[Variant]
    by_run: bool = False
    of: str = ""

    def files(self) -> list[str]:
        """The names of the PNG files, one for each view."""
        if len(self.variants) == 1:
            return [f"{self.id}.png"]
        return [f"{self.id}-{_slug(variant.label)}.png" for variant in self.variants]

    def page_specs(self) -> list[dict[str, Any]]:
        """Vega-Lite specifications that fill the width of the page."""
        specs = [variant.chart.to_dict() for variant in self.variants]
        for spec in specs:
            spec |= {"width": "container", "description": self.alt}
            spec["autosize"] = {"type": "fit-x", "contains": "padding"}
            spec["config"] = {"legend": {"disable": True}} if self.by_run else {}
        return specs

    def pngs(self, data: Mapping[str, Any]) -> dict[str, bytes]:
        """The PNG files' contents by name, with title and legend.

        Args:
            data: The rows by the name of the data.
        """
        files = {}
        for name, variant in zip(self.files(), self.variants, strict=True):
            title = f"{self.of}: {self.title}" if self.of else self.title
            title += f", {variant.label}" if len(self.variants) > 1 else ""
            spec = variant.chart.to_dict() | {"title": title}
            spec["datasets"] = {**spec.get("datasets", {}), **data}
            spec |= {
                "width": _WIDTH,
                "height": _HEIGHT,
                "padding": 20,
                "config": config(dark=False),
            }
            # Nothing is fetched: no base URL is allowed.
            files[name] = vl_convert.vegalite_to_png(spec, scale=_SCALE, allowed_base_urls=[])
        return files


def _slug(label: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in label.lower()).split())
