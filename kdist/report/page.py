"""The page: a report as one HTML file that needs no network."""

from functools import cache
from importlib import resources
from typing import Any

import jinja2
import vl_convert

from ..charts.style import DARK, LIGHT, config
from .report import Report


def render_page(report: Report, *, pictures: str) -> str:
    """Render the HTML of a report; everything that came from files is escaped.

    Args:
        report: What the page shows.
        pictures: The folder of the PNG files, as the page finds it.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_part("page.html.jinja"))
    return template.render(
        report=report,
        pictures=pictures,
        content=_content(report),
        style=_part("page.css"),
        colours=_colours(),
        colour_of={name: at % len(LIGHT) for at, name in enumerate(report.by_colour)},
        script=_part("page.js"),
        library=_library(),
    )


def _content(report: Report) -> dict[str, Any]:
    """Return what the page's script reads: specifications, their data once, and both themes."""
    figures = {}
    for figure in report.figures:
        specs = figure.page_specs()
        names = [name for name in report.data if any(_uses(spec, name) for spec in specs)]
        columns = [variant.column for variant in figure.variants]
        figures[figure.id] = {
            "specs": specs,
            "columns": columns,
            "byRun": figure.by_run,
            "names": names,
        }
    themes = {"light": config(dark=False), "dark": config(dark=True)}
    for theme in themes.values():
        theme["background"] = "transparent"
    return {"figures": figures, "data": report.data, "config": themes}


def _uses(part: Any, name: str) -> bool:
    """Whether a specification reads the data of this name."""
    if isinstance(part, dict):
        return part.get("data") == {"name": name} or any(_uses(v, name) for v in part.values())
    return isinstance(part, list) and any(_uses(one, name) for one in part)


def _colours() -> str:
    """Return CSS rules for the colours of runs, those of the charts."""
    rules = [f".colour-{at} {{ color: {colour}; }}" for at, colour in enumerate(LIGHT)]
    dark = (f'[data-theme="dark"] .colour-{at} {{ color: {c}; }}' for at, c in enumerate(DARK))
    return "\n".join([*rules, *dark])


@cache
def _library() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed, which vl-convert contains."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace(
        "</script", "<\\/script"
    )


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
