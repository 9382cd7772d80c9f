"""CONTRIBUTING's table of folders has the order of the import rules."""

import itertools
import re
import tomllib

from markdown_pages import ROOT


def test_the_table_has_the_order_of_the_import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = rules["tool"]["importlinter"]["contracts"][0]["layers"]
    floors = {name: i for i, layer in enumerate(layers) for name in layer.split(" | ")}
    table = (ROOT / "CONTRIBUTING.md").read_text().split("[start:layout]")[1].split("[end:")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows]
    assert {name for row in named for name in row} == set(floors)
    ends = [(min(map(floors.get, row)), max(map(floors.get, row))) for row in named]
    for (_, above), (below, _) in itertools.pairwise(ends):
        assert above <= below
