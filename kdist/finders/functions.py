"""The user's functions, from a command line or from Python."""

import inspect
import os
from collections.abc import Callable
from typing import Any

from ..errors import UserError
from ..user_model.functions import UserFunctions, has_parameter, load_functions, takes_hp

Function = str | Callable[..., Any]
"""A function, or `"FILE.py:FUNCTION"`."""


def as_functions(build: Function, data: Any) -> UserFunctions:
    """Return the functions that make a model and its data.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`.
        data: A function that returns the data, or its name in the module of `build`; for a `build`
            from a file also `"FILE.py:FUNCTION"`.

    Raises:
        UserError: One is neither, or the file has no such function.
    """
    if isinstance(build, str):
        return load_functions(build, data if isinstance(data, str) else function_name(data))
    if not callable(build):
        raise UserError(
            f"build has to be a function that returns a compiled model, or 'FILE.py:FUNCTION',"
            f" received {type(build).__name__}"
        )
    if isinstance(data, str):
        data = getattr(inspect.getmodule(build), data, data)
    if not callable(data):
        raise UserError(
            "data has to be a function that returns (x, y), (x_val, y_val) or a"
            f" tf.data.Dataset, or the name of one beside build, received {_shown(data)}: write"
            " data=lambda: ..."
        )
    return UserFunctions(
        files=tuple(dict.fromkeys([_file(build), _file(data)])),
        build=build,
        make_data=data,
        takes_hp=takes_hp(build),
        takes_batch=has_parameter(data, "batch_size"),
        build_name=_name(build),
        data_name=_name(data),
    )


def function_name(function: Function) -> str:
    """Return the `"FILE.py:FUNCTION"` by which another process finds a function.

    Raises:
        UserError: It is not at the top level of a file.
    """
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        path = inspect.getsourcefile(function) or ""
    except TypeError:  # no function
        path = ""
    if not name.isidentifier() or not path.endswith(".py") or not os.path.isfile(path):
        raise UserError(
            f"each try runs in a process of its own, which cannot find {name}: put the function at"
            " the top level of a file, and pass it or 'FILE.py:FUNCTION'"
        )
    return f"{path}:{name}"


def _file(function: Callable[..., Any]) -> str:
    """The file of a function, by which errors in it are named."""
    try:
        return inspect.getsourcefile(function) or "<unknown>"
    except TypeError:  # an object that can be called, or one written in C
        return "<unknown>"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__
