"""Lines of the user's program: of an error, of an operation, of a class or function."""

import ast
import inspect
import linecache
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..source_lines import innermost_line, line_at

_LIBRARIES = tuple(
    {
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    | {str(Path(__file__).resolve().parents[1])}
)
_HERE = Path(__file__).resolve().parent
# pytest's own and the like; a model in a test is the user's.
_LAUNCHERS = ("<frozen ", "<string>", "<stdin>")
# AutoGraph's copy of a user's function.
_GENERATED = "__autograph_generated_file"
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def is_of_user(path: str) -> bool:
    """Whether a file is of the user, not of Python, a library or kdist."""
    if not path or path.startswith(_LAUNCHERS) or Path(path).name.startswith(_GENERATED):
        return False
    return not str(Path(path).resolve()).startswith(_LIBRARIES)


def line_of_error(error: BaseException) -> str:
    """Return the innermost line of the user's program that an exception has passed; empty if none.

    Those that TensorFlow raises while a graph runs have the lines in their text only.
    """
    frames = traceback.extract_tb(error.__traceback__)
    passed = [(frame.filename, frame.lineno or 0) for frame in frames]
    told = [(path, int(number)) for path, number in _PLACE.findall(str(error))]
    # After the lines of check itself, which the user's program has called.
    begins = [at for at, (path, _) in enumerate(told) if Path(path).parent == _HERE]
    told = told[begins[-1] :] if begins else told
    for places in (passed, told):
        own = [place for place in places if is_of_user(place[0])]
        if own:
            return line_at(*own[-1])
    return ""


def line_of_operation(operation: Any) -> str:
    """Return the innermost line of the user's program that made an operation of a graph."""
    return innermost_line(operation.traceback, is_of_user)


def line_of_definition(definition: Any) -> str:
    """Return the line where the user defines a class or function; empty if it is a library's."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(definition))
        _, number = inspect.getsourcelines(definition)
    except (OSError, TypeError):
        return ""
    return line_at(path, number) if path and is_of_user(path) else ""


def line_of_global(function: Callable[..., Any], value: Any) -> str:
    """Return the line that makes a global of a function's module; empty if it is none.

    Args:
        function: The function, perhaps a wrapper of it.
        value: The object.
    """
    module = inspect.getmodule(inspect.unwrap(function))
    names = {name for name, one in vars(module).items() if one is value} if module else set()
    try:
        path = inspect.getsourcefile(module) or "" if module else ""
        tree = ast.parse("".join(linecache.getlines(path)))
    except (TypeError, SyntaxError):
        return ""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(one, ast.Name) and one.id in names for one in targets):
            return line_at(path, node.lineno)
    return ""


def calls_in(definition: Any, matches: Callable[[ast.Call], bool]) -> list[str]:
    """Return the lines of a function or class of the user with such calls.

    Where it has none, that of its module if there is only one, as of a function that it calls.

    Args:
        definition: A function or class.
        matches: Whether a call is one of those that are looked for.
    """
    own = _calls_in(definition, matches)
    if own:
        return own
    others = _calls_in(inspect.getmodule(definition), matches)
    return others if len(others) == 1 else []


def _calls_in(place: Any, matches: Callable[[ast.Call], bool]) -> list[str]:
    try:
        path = inspect.getsourcefile(inspect.unwrap(place)) or ""
        lines, first_line = inspect.getsourcelines(place)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # such as a lambda in the middle of an expression
        return []
    if not is_of_user(path):
        return []
    return [
        line_at(path, max(first_line, 1) + node.lineno - 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and matches(node)
    ]


def name_of_call(call: ast.Call) -> str:
    """The dotted name of what is called, such as `np.random.default_rng`."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def first(lines: Iterable[str]) -> str:
    """The first of these lines; empty if there is none."""
    return next(iter(lines), "")
