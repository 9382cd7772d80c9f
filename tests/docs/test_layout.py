"""The layout: folders in the order of the import rules, which no file breaks."""

import ast
import graphlib
import tomllib

import grimp
from markdown_pages import ROOT


def import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return rules["tool"]["importlinter"]["contracts"][0]


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
