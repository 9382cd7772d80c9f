import json
import os
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from kdist.errors import UserError
from kdist.report.write_report import write_report
from report_folders import (
    accuracy_rows,
    scaling_rows,
    search_trials,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)

EVIL = "<script>window.hacked = 1<"


class Page(HTMLParser):
    """The elements and words of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data.strip())


def charts_of(page):
    """The words of each chart; a chart that is no XML raises an error."""
    charts = re.findall(r"<svg.*?</svg>", page.read_text(), re.S)
    return [list(ElementTree.fromstring(chart).itertext()) for chart in charts]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_run(folder / "in" / EVIL)
    run = write_run(folder / "in" / "plain", width=2, dataset="cifar10")
    (run / "summary.json").unlink()
    write_sweep(folder / "in" / "<b>old", "scaling", [], format=99)
    for kind, rows in (
        ("throughput", throughput_rows(batches=(8, 32))),
        ("accuracy", accuracy_rows()[:2]),
        ("scaling", scaling_rows()),
    ):
        write_sweep(folder / "in" / kind, kind, rows)
    write_search(folder / "in" / "tune", search_trials())
    page = folder / "out" / "report.html"
    found, skipped = write_report([str(folder / "in")], output=str(page))
    assert found == page
    return page, skipped


def test_names_from_run_folders_are_escaped(written):
    page = Page(written[0].read_text())
    assert not [tag for tag, _ in page.tags if tag in ("b", "script")]
    assert EVIL in page.words
    assert any("<b>old" in words for words in page.words)
    assert any(f"{EVIL}: 1, 0.5" in words for words in charts_of(written[0]))


def test_every_section_has_its_chart_and_the_page_needs_nothing_from_outside(written):
    page = Page(written[0].read_text())
    charts = charts_of(written[0])
    titles = [title for chart in charts for title in chart]
    for title in (
        *("Images per second", "Best validation accuracy", "Efficiency", "base_lr"),
        *("Validation accuracy", "Seconds of training"),
    ):
        assert title in titles
    # Three sweeps, a search of two hyperparameters that varied, runs of two data sets.
    assert len(charts) == 2 + 3 + 2 + 3 + 2 * 7
    for _, attributes in page.tags:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:")
    [policy] = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy
    assert [path.name for path in written[0].parent.iterdir()] == ["report.html"]


def test_folders_that_cannot_be_shown_are_returned_and_listed(written):
    page, ((path, reason),) = written
    assert path.endswith("<b>old")
    assert "format 99" in reason
    assert reason in Page(page.read_text()).words


@pytest.mark.slow
def test_a_report_is_replaced(tmp_path):
    output = tmp_path / "my report (2), 报告.html"
    write_report([str(write_run(tmp_path / "a"))], output=str(output))
    write_report([str(write_run(tmp_path / "b"))], output=str(output))
    words = Page(output.read_text()).words
    assert "b" in words
    assert "a" not in words


def test_names_of_another_encoding(tmp_path):
    run = write_run(tmp_path / "in" / os.fsdecode(b"run-\xff"))
    write_sweep(tmp_path / "in" / os.fsdecode(b"old-\xfe"), "scaling", [], format=99)
    summary = json.loads((run / "summary.json").read_text()) | {"data": "\ud800"}
    (run / "summary.json").write_text(json.dumps(summary))
    output = tmp_path / "report.html"
    _, ((path, _),) = write_report([str(tmp_path / "in")], output=str(output))
    assert path.endswith(os.fsdecode(b"old-\xfe"))
    page = Page(output.read_text())
    assert "run-?" in page.words
    assert len(charts_of(output)) == 7


def test_the_page_is_beside_the_runs(tmp_path, monkeypatch):
    for name in ("a", "b/c", "b/d"):
        write_run(tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    for paths, folder in (
        (["runs"], "runs"),
        (["runs/a"], "runs/a"),
        (["runs/b/c", "runs/b/d/"], "runs/b"),
        (["runs/a", str(tmp_path / "runs" / "b" / "d")], "runs"),
    ):
        page, _ = write_report(paths)
        assert str(page) == f"{folder}/report.html"
        assert page.is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    monkeypatch.chdir("runs/b")
    page, _ = write_report(["c", "../a"])
    assert page == tmp_path / "runs" / "report.html"
    with pytest.raises(UserError, match="c, /dev/null have no folder in common: pass --output"):
        write_report(["c", "/dev/null"])


def test_a_file_of_something_else_is_not_overwritten(tmp_path):
    run, output = write_run(tmp_path / "a"), tmp_path / "report.html"
    output.write_text("<html>my thesis</html>")
    with pytest.raises(UserError, match="is not a report of kdist"):
        write_report([str(run)], output=str(output))
    assert output.read_text() == "<html>my thesis</html>"


@pytest.mark.parametrize("output", ["a", "a/config.json/report.html"])
def test_an_output_that_cannot_be_written(tmp_path, output):
    run = write_run(tmp_path / "a")
    with pytest.raises(UserError, match="cannot write"):
        write_report([str(run)], output=str(tmp_path / output))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "--output is an empty path: leave it out"),
        ("\udcff.html", "--output has to be a path in UTF-8"),
        ("/dev/full", "cannot write /dev/full: it is not a regular file; pass another --output"),
        (".", "cannot write .: it is not a regular file"),
        ("x" * 300, "cannot write x*: File name too long; pass another --output"),
    ],
)
def test_an_output_that_is_no_file_is_refused_and_nothing_written(
    tmp_path, monkeypatch, output, words
):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a")
    with pytest.raises(UserError, match=f"^{words}"):
        write_report(["a"], output=output)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kdist.report.write_report.atomic_write", full)
    write_run(tmp_path / "a")
    output = tmp_path / "new" / "report.html"
    with pytest.raises(UserError, match=r"cannot write .*report\.html: No space left on device"):
        write_report([str(tmp_path / "a")], output=str(output))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_of_a_large_file_only_the_first_bytes_are_read(tmp_path):
    run, output = write_run(tmp_path / "a"), tmp_path / "report.html"
    with output.open("wb") as file:
        file.truncate(2**36)  # a file of holes, which no memory takes
    with pytest.raises(UserError, match="is not a report of kdist"):
        write_report([str(run)], output=str(output))
