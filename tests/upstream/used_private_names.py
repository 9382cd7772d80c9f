"""Which private names of Keras, TensorFlow and KerasTuner kdist uses.

Those of Keras are in `kdist/_upstream`; `kdist/spmd` builds on TensorFlow's graphs.

Read from the source: what is imported from modules that are not public, attributes of that, and
attributes whose names begin with an underscore, also where such a name is a text. A public function
that a patch replaces is not among them: without it, installing the patch fails.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "kdist/_upstream", ROOT / "kdist/spmd"]
_PRIVATE_MODULES = ("keras.src", "tensorflow.python", "keras_tuner.src")
_PRIVATE = re.compile(r"_[a-z]\w*")
# Beginnings of names: kdist's own, Python's of named tuples, and attributes of graphs' nodes.
_NOT_UPSTREAM = ("_kdist", "_fields", "_class", "_implements", "_mask", "_num_original_outputs")


def used_private_names():
    """The names, each with the places (file and line) that use it."""
    places = {}
    for path in sorted(path for folder in FOLDERS for path in folder.rglob("*.py")):
        for name, line in _names_in(ast.parse(path.read_text())):
            place = f"{path.relative_to(ROOT)}:{line}"
            if place not in places.setdefault(name, []):
                places[name].append(place)
    return places


def other_private_names():
    """Names that the rest of kdist uses as attributes or imports, and does not define."""
    folders = [ROOT / name for name in ("kdist", "callbacks", "models")]
    files = {path for folder in folders for path in folder.rglob("*.py")}
    files -= {path for folder in FOLDERS for path in folder.rglob("*.py")}
    trees = [ast.parse(path.read_text()) for path in files]
    used = {name for tree in trees for name, _ in _names_in(tree, texts=False)}
    return used.difference(*map(_defined_in, trees))


def _names_in(tree, *, texts=True):
    own, imported = _defined_in(tree), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PRIVATE_MODULES):
            for one in node.names:
                imported[one.asname or one.name] = f"{node.module}.{one.name}"
                yield f"{node.module}.{one.name}", node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            first, _, rest = path.partition(".")
            if path.startswith(_PRIVATE_MODULES):
                yield path, node.lineno
            elif first in imported and isinstance(node.value, ast.Name):
                yield f"{imported[first]}.{rest}", node.lineno
            elif _is_private(node.attr) and (_is_super(node.value) or node.attr not in own):
                yield node.attr, node.lineno
        elif texts and isinstance(node, ast.Constant) and _is_private(node.value):
            yield node.value, node.lineno


def _defined_in(tree):
    """Private names of the file itself: its functions, and what its classes set on `self`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _is_private(name):
    return (
        isinstance(name, str)
        and bool(_PRIVATE.fullmatch(name))
        and not name.startswith(_NOT_UPSTREAM)
    )


def _is_super(node):
    return ast.unparse(node) == "super()"
