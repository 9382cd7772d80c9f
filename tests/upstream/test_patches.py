"""The table of patches: when they are put in, their upstream tests, their page."""

import ast
import dataclasses
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from kdist._upstream import patching
from kdist._upstream.all_patches import ONE_MACHINE, PATCHES
from kdist.errors import UserError

ROOT = Path(__file__).parents[2]


def test_replaced_functions_keep_their_names_and_are_replaced_once_by_each():
    class Owner:
        def method(self):
            return 1

    def doubled(original, owner):
        return 2 * original(owner)

    def less(original, owner):
        return original(owner) - 1

    for replacement in (doubled, doubled, less):
        patching.replace(Owner, "method", replacement)
    assert Owner().method() == 1
    assert Owner.method.__name__ == "method"


def test_every_patch_has_an_upstream_test():
    tests = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {patch.test for patch in PATCHES} <= tests


def test_the_page_has_the_table():
    module = runpy.run_path(str(ROOT / "docs/keras_patches_page.py"))
    assert module["PATH"].read_text() == module["page"](), "run python docs/keras_patches_page.py"


def test_the_readme_counts_what_the_first_strategy_replaces():
    assert f"[{len(ONE_MACHINE)} functions of Keras" in (ROOT / "README.md").read_text()
    assert f"的 {len(ONE_MACHINE)} 个函数" in (ROOT / "README.zh-CN.md").read_text()


def test_importing_kdist_changes_nothing_in_keras_and_tensorflow():
    script = Path(__file__).with_name("what_imports_change.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_function_that_is_gone_is_named():
    gone = dataclasses.replace(PATCHES[0], owner=keras.Model, name="no_such")
    with pytest.raises(
        UserError, match=r"no_such, which the installed Keras does .* install Keras 3"
    ):
        gone.install()
