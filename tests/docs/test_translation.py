"""README.md is short, and README.zh-CN.md has its commands, code and figures."""

import re

from markdown_pages import ROOT, blocks, inline_code, links, prose

ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh-CN.md").read_text()


def without_comments(code):
    """Code whose comments, which are translated, are away."""
    lines = [re.sub(r" *(^|  )# .*$", "", line).rstrip() for line in code.splitlines()]
    return [line for line in lines if line]


def figures(text):
    """The numbers of each section, in order of size."""
    sections = re.split(r"^## .*$", prose(text), flags=re.MULTILINE)
    return [sorted(re.findall(r"\d+(?:[.,]\d+)*", section)) for section in sections]


def test_commands_and_code():
    english, chinese = blocks(ENGLISH), blocks(CHINESE)
    assert [block.language for block in english] == [block.language for block in chinese]
    for one, other in zip(english, chinese, strict=True):
        assert without_comments(one.code) == without_comments(other.code)


def test_figures():
    assert figures(ENGLISH) == figures(CHINESE)


def test_links():
    ours = {"README.md", "README.zh-CN.md"}
    assert [x for x in links(ENGLISH) if x not in ours] == [
        x for x in links(CHINESE) if x not in ours
    ]


def test_names():
    assert sorted(inline_code(ENGLISH)) == sorted(inline_code(CHINESE))
