"""The project's Markdown pages, taken apart: code blocks, prose, links, headings."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Not README.zh-CN.md, whose blocks are those of README.md.
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
)

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<comment>[^\n]*) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_SNIPPET = re.compile(r'^--8<-- "(?P<path>[^":]+)(?::(?P<section>\w+))?"$', re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_OBJECT = re.compile(r"^::: (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: What stands behind the fence.
        code: Its lines.
        line: Of the page, where the code begins, from 1.
        comment: Of the HTML comment right above it, or `""`.
    """

    language: str
    code: str
    line: int
    comment: str


def page_id(page):
    """Return a page's name in tests."""
    return str(page.relative_to(ROOT))


def blocks(text):
    """The fenced blocks of a page."""
    return [
        Block(
            found["language"],
            re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
            text.count("\n", 0, found.start("code")) + 1,
            found["comment"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def prose(text):
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _BLOCK.sub("", text), flags=re.DOTALL)


def inline_code(text):
    """Return the texts between backquotes in a page's prose."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def links(text):
    """The targets of links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(text))


def anchors(page):
    """Return the targets of links into a page: headings, and documented objects."""
    text = _SNIPPET.sub(lambda found: (ROOT / found["path"]).read_text(), page.read_text())
    slugs = [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(text))
    ]
    return {*slugs, *_OBJECT.findall(text)}


def documented_objects():
    """The names that the reference pages document from docstrings."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    return [name for page in pages for name in _OBJECT.findall(page.read_text())]
