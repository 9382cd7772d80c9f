"""Load a user's `build(hp)` and data from a file named on the command line."""

import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError


def split_name(name: str) -> tuple[str, str]:
    """Split `"my_model.py:build"` into `("my_model.py", "build")`.

    Raises:
        UserError: The name has another form, or the file does not exist.
    """
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise UserError(f"a model has to be given as FILE.py:FUNCTION, received {name}")
    if not os.path.isfile(path):  # unlike `Path`, also of a path that no file can have
        raise UserError(f"there is no file {path}: pass FILE.py:FUNCTION")
    return path, function


def load_functions(name: str, data: str) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """Load the functions that make a model and its data.

    Args:
        name: `"FILE.py:FUNCTION"`.
        data: Name of the function in the same file that returns the data.

    Raises:
        UserError: The file has no such functions, or fails.
    """
    path, function = split_name(name)
    module = _load(Path(path))
    build, make_data = getattr(module, function, None), getattr(module, data, None)
    if not callable(build):
        raise UserError(f"{path} has no function {function}(hp): write one that returns a model")
    if not callable(make_data):
        raise UserError(
            f"{path} has no function {data}(): write one that returns (x, y), (x_val, y_val), or"
            " name it with --data"
        )
    if not _takes(build, "hp"):
        raise UserError(f"{path}: {function} has to take one argument, as in def {function}(hp):")
    if not _takes(make_data):
        raise UserError(f"{path}: {data} has to take no argument, as in def {data}():")
    return build, make_data


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        pass  # written in C, without a signature
    return True


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be imported: pass a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # for modules beside it
    sys.modules[path.stem] = module
    with explain_errors_of(str(path)):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def explain_errors_of(path: str) -> Iterator[None]:
    """Turn an exception that the user's code raises into a line that says where and why.

    Args:
        path: The file of the code; what has not passed through it stays as it is.

    Raises:
        UserError: The block raised an exception.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a script may end with `sys.exit()`
        line = _line_of(error, path)
        if line is None:
            raise
        from .failures import reason_of

        raise UserError(f"{path}, line {line}: {reason_of(error)}") from error


def _line_of(error: BaseException, path: str) -> int | None:
    if isinstance(error, SyntaxError):  # which has no frame in the file
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == Path(path).resolve()]
    return own[-1].lineno if own else None


def check_input(model: Any, x: Any, *, what: str = "training data") -> None:
    """Check that a model takes samples of the data.

    Args:
        model: The model that `build(hp)` returned.
        x: The data's inputs, arrays with the samples along the first axis.
        what: Which data they are.

    Raises:
        UserError: It does not.
    """
    import keras

    from .. import _upstream

    if not _upstream.has_call(model):
        return
    try:
        spec = keras.tree.map_structure(
            lambda array: keras.KerasTensor((None, *array.shape[1:]), str(array.dtype)), x
        )
    except (AttributeError, TypeError, ValueError):
        return  # what is no array, Keras converts
    try:
        model(spec)
    except Exception as error:
        from .failures import reason_of

        raise UserError(
            f"the model of build(hp) does not take the {what}: {reason_of(error)}"
        ) from error


def checked_data(data: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Check the result of a data function: training and validation arrays.

    Raises:
        UserError: It is something else.
    """
    try:
        (x, y), (x_val, y_val) = data
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the data function returned {type(data).__name__}, expected (x, y), (x_val, y_val)"
        ) from error
    _check_samples((x, y), "(x, y)")
    _check_samples((x_val, y_val), "(x_val, y_val)")
    return (x, y), (x_val, y_val)


def _check_samples(arrays: Any, name: str) -> None:
    import keras

    shapes = [getattr(array, "shape", None) for array in keras.tree.flatten(arrays)]
    counts = {int(shape[0]): None for shape in shapes if shape and shape[0] is not None}
    if len(counts) > 1:
        numbers = " and ".join(map(str, counts))
        raise UserError(
            f"the data function returned {name} with {numbers} samples: return as many of each"
        )
    if 0 in counts:
        raise UserError(f"the data function returned {name} without samples: return some")
