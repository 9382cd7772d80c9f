"""The page as a reader sees it. One test, so that one browser serves all checks."""

import json
import re

import pytest
from chromium import find_chromium
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

DRAWN = "html[data-drawn={}]"
LINES = "#learning-curves .mark-line path"
ODD = re.compile("one|killed|nan")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    extra = {"batch_norm_gap": [0.9, 0.4, 0.2], "gradient_noise_scale": [90.0, 120.0, 150.0]}
    write_run(folder / "in" / EVIL, extra=extra)
    run = write_run(folder / "in" / "plain", (0.4, 0.6, 0.7), width=2)
    summary = json.loads((run / "summary.json").read_text())
    summary["data"] = "</script><script>hacked = 1</script>"
    (run / "summary.json").write_text(json.dumps(summary))
    write_odd_runs(folder / "in")
    for kind, rows in (
        ("throughput", throughput_rows(batches=(8, 32))),
        ("accuracy", accuracy_rows()[:2]),
        ("scaling", scaling_rows()),
    ):
        write_sweep(folder / "in" / kind, kind, rows)
    write_search(folder / "in" / "tune", search_trials())
    (folder / "lab.csv").write_text("batch_size,images_per_sec\n32,100\n64,150\n")
    with pytest.MonkeyPatch.context() as patch:  # PNG files have a test of their own
        patch.setattr("kdist.charts.figure.Figure.pngs", lambda figure, data: {})
        paths = [str(folder / "in"), str(folder / "lab.csv")]
        return write_report(paths, output=str(folder / "report.html")).page


def write_odd_runs(folder):
    """A run of one epoch, one killed before its first epoch ended, and one that learned nothing."""
    write_run(folder / "one", (0.5,))
    killed = write_run(folder / "killed", batch_size=16)
    for file in ("summary.json", "history.csv"):
        (killed / file).unlink()
    nothing = {"loss": ["nan"] * 3, "val_loss": ["inf"] * 3, "val_accuracy": [""] * 3}
    write_run(folder / "nan", extra=nothing, rates=("",), batch_size=64)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path, reason = find_chromium()
    if path is None:
        pytest.skip(reason)
    with playwright.sync_playwright() as started:
        # Root, as in containers, has no sandbox.
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, page_file):
    """Opens the page in a window of its own; whatever it complains of or fetches is a failure."""
    contexts, complaints = [], []

    def open_page(width, height, scheme):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda one: one.url.startswith("file:") or complaints.append(one.url))
        page.goto(page_file.as_uri())
        page.wait_for_selector(DRAWN.format(scheme))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def wait_for_lines(page, number):
    script = "([lines, number]) => document.querySelectorAll(lines).length === number"
    page.wait_for_function(script, arg=[LINES, number])


def columns_can_be_reached(page):
    """Of every table the last column can be scrolled to, and the first stays beside it."""
    assert page.locator(".scroll").count() > 8
    for table in page.locator(".scroll").all():
        box = table.bounding_box()
        table.evaluate("table => table.scrollTo(table.scrollWidth, 0)")
        first, *_, last = (cell.bounding_box() for cell in table.locator("thead th").all())
        assert first["x"] == pytest.approx(box["x"], abs=1)
        assert first["x"] + first["width"] <= last["x"] + 1
        assert last["x"] + last["width"] <= box["x"] + box["width"] + 1


def charts_are_drawn(page):
    charts = page.locator(".chart")
    assert charts.count() >= 12
    for chart in charts.all():
        assert chart.locator("svg .mark-symbol path, svg .mark-line path").count() > 0
        assert chart.get_attribute("role") == "img"
        assert chart.get_attribute("aria-label")


def names_are_words(page):
    assert page.locator(".chip", has_text="<img src=x").count() == 1
    page.locator("#run-speeds .mark-symbol path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert EVIL in tooltip.inner_text()
    assert page.evaluate("typeof hacked") == "undefined"


def runs_are_hidden_and_shown(page):
    assert page.locator(LINES).count() == 6
    page.locator(".chip", has_text="plain").click()
    wait_for_lines(page, 5)
    assert page.locator("#accuracy-over-time .mark-line path").count() == 5
    assert page.locator("#shown").inner_text() == "6 of 7 shown"
    page.locator("[data-choose=none]").click()
    page.locator("#learning-curves .empty").wait_for()
    assert page.locator(".empty").count() == page.locator("#runs .chart").count()
    page.locator("[data-choose=all]").click()
    wait_for_lines(page, 6)
    assert page.locator(".empty").count() == 0


def each_run_alone_has_an_axis_or_a_word(page):
    page.locator("[data-choose=none]").click()
    for chip in page.locator(".chip", has_text=ODD).all():
        chip.click()
        for view in range(page.locator("#learning-curves option").count()):
            page.locator("#learning-curves select").select_option(index=view)
        page.locator("#learning-curves .chart :is(.empty, svg)").wait_for()
        chip.click()
    assert page.locator(".chart path[d*=NaN]").count() == 0
    page.locator("#learning-curves select").select_option(index=0)
    page.locator("[data-choose=all]").click()
    wait_for_lines(page, 6)


def another_view_has_its_own_file(page):
    page.locator("#learning-curves select").select_option(label="Training loss")
    page.locator("#learning-curves svg text", has_text="Training loss").wait_for()
    links = page.locator("#learning-curves figcaption a").all()
    [link] = [one for one in links if one.is_visible()]
    assert link.get_attribute("href").endswith("learning-curves-training-loss.png")


def is_dark_by_choice(page):
    page.locator("#theme").click()
    page.wait_for_selector(DRAWN.format("dark"))
    assert page.locator("#theme").inner_text() == "Light"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 200


def fits_a_phone(phone):
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for chart in phone.locator(".chart svg").all():
        assert chart.bounding_box()["width"] <= 390
    for label in phone.locator(".role-legend-label text").all():
        box = label.bounding_box()
        assert box["x"] + box["width"] <= 390 - 14  # the padding of the card
    columns_can_be_reached(phone)


def test_in_a_browser(opened, subtests):
    page = opened(1280, 900, "light")
    for check in (
        charts_are_drawn,
        names_are_words,
        runs_are_hidden_and_shown,
        each_run_alone_has_an_axis_or_a_word,
        columns_can_be_reached,
        another_view_has_its_own_file,
        is_dark_by_choice,
    ):
        with subtests.test(check.__name__):
            check(page)
    with subtests.test("a phone, dark by its own setting"):
        fits_a_phone(opened(390, 844, "dark"))
