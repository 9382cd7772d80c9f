"""The private names that kdist imports are there, and used where they may be alone.

When a test fails, upstream has renamed or removed the name: its message says which lines use it.
"""

import importlib
import pkgutil

import pytest
from used_private_names import other_private_names, used_private_names

USED = used_private_names()
# What kdist's optimizers inherit, as Keras's own do.
INHERITED = {"_get_variable_index"}


@pytest.mark.parametrize("name", sorted(name for name in USED if "." in name))
def test_upstream_has_what_is_imported(name):
    assert hasattr(*_owner_and_name(name)), f"used in {USED[name]}"


def _owner_and_name(dotted):
    module, _, rest = dotted.rpartition(".")
    try:
        return importlib.import_module(module), rest
    except ImportError:  # an attribute of a class
        return pkgutil.resolve_name(module), rest


def test_nothing_else_in_kdist_uses_a_private_name():
    assert other_private_names() == {"_exit"} | INHERITED  # `os._exit`
