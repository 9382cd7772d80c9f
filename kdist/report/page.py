"""`write_report`: a report as one HTML file that needs no network, and its charts as PNG files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import UserError
from ..files import atomic_write, explain_write_errors, folder_for_files, output_file
from .inputs import find_sources

if TYPE_CHECKING:
    from .sections import Report

# Altair, jinja2 and vl-convert are imported inside the functions: a path that leads nowhere is
# reported at once.

# What begins every page of `page.html.jinja`: tells a report from other HTML files.
_GENERATOR = b'<meta name="generator" content="kdist report">'
_FIRST_BYTES = 2000
_HINT = "pass another --output"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written.

    Attributes:
        page: The HTML file.
        pictures: The PNG files.
        skipped: What the report does not show, and why.
    """

    page: Path
    pictures: Sequence[Path]
    skipped: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        size = self.page.stat().st_size / 1e6
        lines = [f"Skipped: {path}: {reason}" for path, reason in self.skipped]
        lines.append(f"Report: {self.page} ({size:.1f} MB, opens without a network)")
        if self.pictures:
            lines.append(f"Charts: {len(self.pictures)} PNG files in {self.pictures[0].parent}")
        return "\n".join(lines)


def write_report(paths: Sequence[str], *, output: str, baseline: str | None = None) -> Written:
    """Write an HTML report of runs, sweeps and searches, and its charts as PNG files.

    Args:
        paths: Folders of runs, sweeps and searches, or folders of these.
        output: The HTML file; an existing report is replaced with its charts. The PNG
            files go into a folder beside it, `<name>-charts`.
        baseline: Name or path of the run that settings are compared with; the first one by default.

    Raises:
        UserError: Nothing can be shown, a path or the baseline does not exist, or `output` cannot
            be written or is not a report.
    """
    page = output_file(output, option="--output")
    folder = page.with_name(f"{page.stem}-charts")
    before = _pictures_before(page)
    sources = find_sources(paths)
    from .sections import make_report

    report = make_report(sources, baseline=baseline)
    pictures = {
        section.file(figure): figure.png()
        for section in report.sections
        for figure in section.figures
    }
    with explain_write_errors(page, hint=_HINT), folder_for_files(folder):
        for name, content in pictures.items():
            atomic_write(folder / name, content)
        atomic_write(page, render_page(report, pictures=folder.name))
        for name in before - set(pictures):
            (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
    return Written(
        page=page, pictures=[folder / name for name in pictures], skipped=sources.skipped
    )


def _pictures_before(page: Path) -> set[str]:
    """Return the PNG files of the report that is to be replaced; reject any other file."""
    with explain_write_errors(page, hint=_HINT):
        if not page.exists():
            return set()
        with page.open("rb") as file:
            begins_as_report = _GENERATOR in file.read(_FIRST_BYTES)
        if not begins_as_report:
            raise UserError(f"{page} is not a report of kdist: pass another --output, or remove it")
        text = page.read_text(encoding="utf-8", errors="replace")
    folder = re.escape(quote(f"{page.stem}-charts"))
    return set(re.findall(rf'href="{folder}/([a-z0-9-]+\.png)"', text))


def render_page(report: "Report", *, pictures: str) -> str:
    """Render the HTML of a report; everything that came from files is escaped.

    Args:
        report: What the page shows.
        pictures: The folder of the PNG files, as the page finds it.
    """
    import jinja2
    import vl_convert

    from ..charts.figures import CONFIG

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    specs = {
        section.file(figure): figure.spec() | {"config": CONFIG}
        for section in report.sections
        for figure in section.figures
    }
    # Vega, Vega-Lite and Vega-Embed, which vl-convert contains.
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return environment.from_string(template).render(
        report=report,
        pictures=pictures,
        specs=specs,
        library=library.replace("</script", "<\\/script"),
    )
