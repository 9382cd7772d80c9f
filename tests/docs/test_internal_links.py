"""Links between pages, files and names of the code that pages mention exist."""

import importlib
import re

import pytest
from markdown_pages import PAGES, ROOT, anchors, inline_code, links, page_id

FOLDERS = (".ci", "benchmarks", "callbacks", "docs", "examples", "kdist", "models", "tests")

# A file that a reader would write, and one that nobody should.
NOT_HERE = ("my_model.py", "utils.py")

pages = pytest.mark.parametrize("page", [*PAGES, ROOT / "README.zh-CN.md"], ids=page_id)


@pages
def test_links_lead_somewhere(page):
    for link in links(page.read_text()):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pages
def test_files_exist(page):
    for code in inline_code(page.read_text()):
        if code.split("/")[0] in FOLDERS and "/" in code and not re.search(r"[<*… ]", code):
            assert (ROOT / code).exists(), code
        elif re.fullmatch(r"\w+/[\w/]+\.py", code):  # below the package
            assert (ROOT / "kdist" / code).exists(), code
        elif re.fullmatch(r"\w+\.py", code) and code not in NOT_HERE:
            assert any(next((ROOT / folder).rglob(code), None) for folder in FOLDERS), code


@pages
def test_names_of_kdist_exist(page):
    for code in inline_code(page.read_text()):
        found = re.match(r"kdist(\.\w+)+", code)
        if found and not code.endswith(".py"):
            assert resolve(found[0]) is not None, code


def resolve(name):
    """Return the object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    return None
