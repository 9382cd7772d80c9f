"""The page as a reader sees it: charts are drawn, names are words, nothing is fetched."""

import os
import shutil

import pytest
from kdist.report.page import write_report
from report_folders import (
    accuracy_rows,
    scaling_rows,
    search_trials,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)

EVIL = "<img src=x onerror='hacked=1'>"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    write_run(folder / "in" / EVIL, extra={"gradient_noise_scale": [90.0, 120.0, 150.0]})
    write_run(folder / "in" / "plain", (0.4, 0.6, 0.7), width=2)
    write_run(folder / "in" / "one", (0.5,))
    killed = write_run(folder / "in" / "killed", batch_size=16)
    for file in ("summary.json", "history.csv"):
        (killed / file).unlink()
    nothing = {"loss": ["nan"] * 3, "val_loss": ["inf"] * 3, "val_accuracy": [""] * 3}
    write_run(folder / "in" / "nan", extra=nothing, rates=("",), batch_size=64)
    for kind, rows in (
        ("throughput", throughput_rows(batches=(8, 32))),
        ("accuracy", accuracy_rows()[:2]),
        ("scaling", scaling_rows()),
    ):
        write_sweep(folder / "in" / kind, kind, rows)
    write_search(folder / "in" / "tune", search_trials())
    with pytest.MonkeyPatch.context() as patch:  # PNG files have a test of their own
        patch.setattr("kdist.charts.figures.Figure.png", lambda figure: b"png")
        return write_report([str(folder / "in")], output=str(folder / "report.html")).page


@pytest.fixture
def page(page_file):
    """The page in Chromium; whatever it complains of or fetches is a failure."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = [os.environ.get("CHROMIUM"), *map(shutil.which, NAMES)]
    path = next(filter(None, found), None)
    if path is None:
        pytest.skip("no Chromium: install it, or name it in the variable CHROMIUM")
    complaints = []
    with playwright.sync_playwright() as started:
        # Root, as in containers, has no sandbox.
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda one: one.url.startswith("file:") or complaints.append(one.url))
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-drawn]")
        yield page
        browser.close()
    assert complaints == []


def test_in_a_browser(page):
    charts = page.locator(".chart").all()
    assert len(charts) == 6
    for chart in charts:
        assert chart.locator("svg .mark-symbol path, svg .mark-line path").count() > 0
    assert page.locator(".chart path[d*=NaN]").count() == 0

    curves = page.locator("[data-chart='runs-learning-curves.png']")
    assert curves.locator(".role-legend-label", has_text=EVIL[:8]).count() == 1
    page.locator("[data-chart='runs-run-speeds.png'] .mark-symbol path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert EVIL in tooltip.inner_text()
    assert page.evaluate("typeof hacked") == "undefined"

    # A click on a run's name leaves the others faint, in every view.
    faint = "path => path.getAttribute('opacity') < 0.1"
    lines = curves.locator(".mark-line path").all()
    assert not any(line.evaluate(faint) for line in lines)
    curves.locator(".role-legend-label text", has_text="plain").click(force=True)
    page.wait_for_timeout(300)
    clear = [line for line in lines if not line.evaluate(faint)]
    assert 1 < len(clear) < len(lines) / 2
