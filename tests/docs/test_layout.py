"""The layout."""

import graphlib

import grimp


def test_no_files_import_each_other_in_a_circle():
    """Not even for types alone, or inside functions."""
    graph = grimp.build_graph("kdist", cache_dir=None)
    imported = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    assert graphlib.TopologicalSorter(imported).prepare() is None  # else a CycleError names one
