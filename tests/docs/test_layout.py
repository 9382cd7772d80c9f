"""The layout: folders in the order of the import rules, which no file breaks."""

import ast
import graphlib
import itertools
import re
import tomllib

import grimp
from markdown_pages import ROOT


def named_in_layout():
    """The folders and files of each row of CONTRIBUTING's table."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("[start:layout]")[1].split("[end:")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows]


def import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return rules["tool"]["importlinter"]["contracts"][0]


def test_the_table_has_the_order_of_the_import_rules():
    layers = import_rules()["layers"]
    floors = {name: i for i, layer in enumerate(layers) for name in layer.split(" | ")}
    named = named_in_layout()
    assert {name for row in named for name in row} == set(floors)
    ends = [(min(map(floors.get, row)), max(map(floors.get, row))) for row in named]
    for (_, above), (below, _) in itertools.pairwise(ends):
        assert above <= below


def test_no_files_import_each_other_in_a_circle():
    """Not even for types alone, or inside functions."""
    graph = grimp.build_graph("kdist", cache_dir=None)
    imported = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    assert graphlib.TopologicalSorter(imported).prepare() is None  # else a CycleError names one


def test_entries_only_import_and_are_for_users_alone():
    graph = grimp.build_graph("kdist", exclude_type_checking_imports=True, cache_dir=None)
    for name in import_rules()["exhaustive_ignores"]:
        assert not graph.find_modules_that_directly_import(f"kdist.{name}")
        kinds = {type(line) for line in ast.parse((ROOT / "kdist" / f"{name}.py").read_text()).body}
        assert not kinds & {ast.FunctionDef, ast.ClassDef}
