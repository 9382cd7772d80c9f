"""`write_report`: a report as one HTML file that needs no network and no script."""

import base64
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from ..errors import UserError
from ..files import atomic_write, explain_write_errors, folder_for_files, output_file
from .inputs import find_sources

if TYPE_CHECKING:
    from .sections import Report

# Altair, jinja2 and vl-convert are imported inside the functions: a path that leads nowhere is
# reported at once.

# The beginning of every page, which tells a report from other HTML files.
_GENERATOR = b'<meta name="generator" content="kdist report">'
_FIRST_BYTES = 2000
_HINT = "pass another --output"


def write_report(paths: Sequence[str], *, output: str) -> list[tuple[str, str]]:
    """Write an HTML report of runs, sweeps and searches.

    Args:
        paths: Folders of runs, sweeps and searches, or folders of these.
        output: The HTML file; an existing report is replaced.

    Returns:
        The paths that the report does not show, each with the reason.

    Raises:
        UserError: Nothing can be shown, a path does not exist, or `output` cannot be written or is
            not a report.
    """
    page = output_file(output, option="--output")
    with explain_write_errors(page, hint=_HINT):
        if page.exists():
            with page.open("rb") as file:
                if _GENERATOR not in file.read(_FIRST_BYTES):
                    raise UserError(f"{page} is not a report of kdist: {_HINT}, or remove it")
    sources = find_sources(paths)
    from .sections import make_report

    text = render_page(make_report(sources))
    with explain_write_errors(page, hint=_HINT), folder_for_files(page.parent):
        atomic_write(page, text)
    return sources.skipped


def render_page(report: "Report") -> str:
    """Render the HTML of a report; text from files is escaped, and charts are SVG images."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(report=report)
