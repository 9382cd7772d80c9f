import json
import os
import re
from html.parser import HTMLParser

import pytest
from kdist.errors import UserError
from kdist.report.page import write_report
from report_folders import throughput_rows, write_run, write_sweep

EVIL = "<script>window.hacked = 1<"


class Page(HTMLParser):
    """The elements of a page, scripts apart."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.json = [], [], ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = (tag, dict(attributes).get("type"))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == ("script", "application/json"):
            self.json += data
        elif self._inside is None or self._inside[0] not in ("script", "style"):
            self.words.append(data.strip())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_run(folder / "in" / EVIL)
    run = write_run(folder / "in" / "plain", width=2)
    summary = json.loads((run / "summary.json").read_text())
    summary["data"] = "</script><script>window.hacked = 2</script>"
    (run / "summary.json").write_text(json.dumps(summary))
    (folder / "in" / "<b>empty").mkdir()
    return write_report([str(folder / "in")], output=str(folder / "out" / "report.html"))


def test_names_from_run_folders_are_escaped(written):
    page = Page(written.page.read_text())
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "charts"}, {}, {}]
    assert not [tag for tag, _ in page.tags if tag == "b"]
    assert EVIL in page.words
    assert any("<b>empty" in words for words in page.words)
    spec = json.loads(page.json)["runs-learning-curves.png"]
    assert spec["datasets"]["epochs"][0]["run"] == EVIL


def test_the_page_needs_nothing_from_outside(written):
    page = Page(written.page.read_text())
    links = [a[name] for _, a in page.tags for name in ("src", "href") if name in a]
    assert links
    for link in links:
        assert link.startswith(("#", "report-charts/"))
    [policy] = [a["content"] for _, a in page.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_charts_lie_beside_the_page(written):
    links = re.findall(r'href="(report-charts/[^"]+)"', written.page.read_text())
    assert sorted(
        str(path.relative_to(written.page.parent)) for path in written.pictures
    ) == sorted(links)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.pictures)
    assert sorted(path.name for path in written.page.parent.iterdir()) == [
        "report-charts",
        "report.html",
    ]


def test_what_was_written_is_printed(written):
    lines = str(written).splitlines()
    assert lines[0].startswith("Skipped: ")
    assert re.fullmatch(r"Report: .*report\.html \(\d\.\d MB, opens without a network\)", lines[1])
    assert lines[2].startswith(f"Charts: {len(written.pictures)} PNG files in ")


@pytest.mark.parametrize("name", ["report", "my report (2), 报告"])
def test_a_report_is_replaced_and_its_charts_with_it(tmp_path, monkeypatch, name):
    monkeypatch.setattr("kdist.charts.figures.Figure.png", lambda figure: b"png")
    output = str(tmp_path / f"{name}.html")
    run = write_run(tmp_path / "a")
    write_report([str(run)], output=output)
    charts = tmp_path / f"{name}-charts"
    (charts / "mine.png").write_text("the reader's own")
    assert (charts / "runs-run-speeds.png").exists()
    sweep = write_sweep(tmp_path / "s", "throughput", throughput_rows())
    write_report([str(sweep)], output=output)
    assert sorted(path.name for path in charts.iterdir()) == [
        "mine.png",
        "sweep-1-throughput.png",
    ]
    failed = [{"status": "failed", "error": "out of memory", "batch_size": 8, "replicas": 1}]
    write_report([str(write_sweep(tmp_path / "f", "throughput", failed))], output=output)
    assert [path.name for path in charts.iterdir()] == ["mine.png"]


def test_names_of_another_encoding(tmp_path):
    run = write_run(tmp_path / "in" / os.fsdecode(b"run-\xff"))
    (tmp_path / "in" / os.fsdecode(b"empty-\xfe")).mkdir()
    summary = json.loads((run / "summary.json").read_text()) | {"data": "\ud800"}
    (run / "summary.json").write_text(json.dumps(summary))
    written = write_report([str(tmp_path / "in")], output=str(tmp_path / "report.html"))
    assert "run-?" in Page(written.page.read_text()).words
    assert "empty-?" in str(written)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.pictures)


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
        ("", "--output has to be a path, received an empty one"),
        ("\udcff.html", "--output has to be a path in UTF-8"),
        ("/dev/full", "cannot write /dev/full: it is not a regular file; pass another --output"),
        (".", "cannot write .: it is not a regular file"),
        ("x" * 300, "cannot write x*: File name too long; pass another --output"),
        ("x" * 250, "cannot write x*-charts: File name too long; pass another --output"),
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


def test_a_full_disk_leaves_no_charts_without_their_page(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kdist.charts.figures.Figure.png", lambda figure: b"png")
    monkeypatch.setattr("kdist.report.page.render_page", full)
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


def test_a_baseline_that_is_not_there(tmp_path):
    run = write_run(tmp_path / "a")
    with pytest.raises(UserError, match="no run is called b: --baseline is one of a"):
        write_report([str(run)], output=str(tmp_path / "report.html"), baseline="b")
    assert not (tmp_path / "report.html").exists()
