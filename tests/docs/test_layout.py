"""The limits of the layout: folders in the order of the import rules, short files and functions."""

import ast
import collections
import functools
import graphlib
import itertools
import re
import tomllib

import grimp
from markdown_pages import ROOT

MOST_ROOMS, MOST_FLOORS = 30, 11
MOST_LINES = 300  # of a file
MOST_LINES_OF_FUNCTION = 60
CODE = ("kdist", "callbacks", "models", "benchmarks", "examples", "docs")


def named_in_layout():
    """The folders and files of each row of CONTRIBUTING's table."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("[start:layout]")[1].split("[end:")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows]


def import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return rules["tool"]["importlinter"]["contracts"][0]


def python_files(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_the_table_has_the_order_of_the_import_rules():
    layers = import_rules()["layers"]
    floors = {name: i for i, layer in enumerate(layers) for name in layer.split(" | ")}
    named = named_in_layout()
    assert {name for row in named for name in row} == set(floors)
    ends = [(min(map(floors.get, row)), max(map(floors.get, row))) for row in named]
    for (_, above), (below, _) in itertools.pairwise(ends):
        assert above <= below


def test_there_are_few_rooms_on_few_floors():
    """A package or a flat module is a room, a floor higher than what it imports.

    The last row of the table is the ground, on which all rooms stand. Entries that only import, as
    `kdist` itself does, are no rooms.
    """
    graph = grimp.build_graph("kdist", exclude_type_checking_imports=True, cache_dir=None)
    *_, ground = named_in_layout()
    imported = collections.defaultdict(set)
    entries = {f"kdist.{name}" for name in import_rules()["exhaustive_ignores"]}
    for module in graph.modules - {"kdist", *entries}:
        room = module.split(".")[1]
        found = graph.find_modules_directly_imported_by(module) - {"kdist"}
        imported[room] |= {one.split(".")[1] for one in found} - {room, *ground}

    @functools.cache
    def floor(room):
        return 1 + max(map(floor, imported[room]), default=0)

    rooms = set(imported) - set(ground)
    assert len(rooms) <= MOST_ROOMS, sorted(rooms)
    assert max(map(floor, rooms)) <= MOST_FLOORS, sorted((floor(room), room) for room in rooms)


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


def test_files_are_short():
    """A test file may have all cases of its subject."""
    lines = {path: len(path.read_text().splitlines()) for path in python_files(*CODE)}
    assert len(lines) > 300
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short():
    """Without the signature, which has an option a line, and the docstring."""
    too_long = {}
    for path in python_files(*CODE, "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[bool(ast.get_docstring(node)) :]
                count = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if count > MOST_LINES_OF_FUNCTION:
                    too_long[f"{path}:{node.name}"] = count
    assert too_long == {}
