"""`render_page`: tables and charts as one HTML page without scripts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from ..study.tables import ResultsTable
from .charts import Figure

GENERATOR = '<meta name="generator" content="kdist report">'
"""Tag in the first lines of every page, by which a report is recognized."""

# The browser is told to run no script and to load nothing.
_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{GENERATOR}
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --page: #fff; --text: #1c2230; --faint: #5a6272;
  --line: #dde1e7 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --page: #14181f; --text: #e4e8ef; --faint: #a3adbd; --line: #363d4a }}
}}
body {{ margin: 0 auto; max-width: 1100px; padding: 16px; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif }}
h1, h2, h3, p, li {{ overflow-wrap: anywhere }}
h3, p, figure {{ margin: 8px 0 }}
h2 {{ margin-top: 40px }}
.faint {{ font-size: 14px }}
.charts {{ display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)) }}
.table {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: 13px }}
.faint, th {{ color: var(--faint) }}
th, td {{ padding: 6px 8px 6px 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top }}
@media (min-width: 700px) {{
  table {{ font-size: 14px }}
  td {{ padding-right: 16px; white-space: nowrap }}
  td:first-child {{ min-width: 8em; white-space: normal; overflow-wrap: anywhere }}
  td:last-child {{ max-width: 24em; white-space: normal; overflow-wrap: break-word }}
}}
svg {{ width: 100%; height: auto }}
ul {{ margin: 8px 0; padding: 0; list-style: none; font-size: 14px }}
li {{ display: inline-block; margin-right: 16px }}
</style>
"""


@dataclass(kw_only=True)
class Section:
    """A part of a page; `lead` is a sentence below the heading."""

    title: str
    lead: str = ""
    tables: list[ResultsTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def render_page(title: str, sections: Sequence[Section], *, about: str = "") -> str:
    """Return a page as HTML, with `about` below the heading; text from files is escaped."""
    return "\n".join(
        [
            f"{_HEAD}<title>{escape(title)} | kdist report</title>\n</head>\n<body>",
            f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(about)}</p>',
            *map(_render_section, sections),
            "</body>\n</html>\n",
        ]
    )


def _render_section(section: Section) -> str:
    return "\n".join(
        [
            f"<section>\n<h2>{escape(section.title)}</h2>\n<p>{escape(section.lead)}</p>",
            *map(_render_table, section.tables),
            *map(_render_figure, section.figures),
            "</section>",
        ]
    )


def _render_table(table: ResultsTable) -> str:
    def row(cells: Iterable[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    return "\n".join(
        [
            f'<h3>{escape(table.title)}</h3>\n<div class="table" tabindex="0"><table>',
            f"<thead>{row(table.columns, 'th')}</thead>\n<tbody>",
            *(row(cells, "td") for cells in table.rows),
            f'</tbody>\n</table></div>\n<p class="faint">{escape(table.note)}</p>',
        ]
    )


def _render_figure(figure: Figure) -> str:
    if not figure.visible_charts:
        return ""
    return "\n".join(
        [
            "<figure>\n<ul>",
            *(
                f'<li><span style="color: {colour}">●</span> {escape(name)}</li>'
                for name, colour in figure.legend
            ),
            '</ul>\n<div class="charts">',
            *(chart.svg() for chart in figure.visible_charts),
            f'</div>\n<figcaption class="faint">{escape(figure.caption)}</figcaption>\n</figure>',
        ]
    )
