"""The user's functions that make a model and its data: names, loading, and errors."""

import contextlib
import dataclasses
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...errors import UserError, find_raising_user_line, format_code_line, is_of_user
from ...processes.process_exit import is_out_of_memory

if TYPE_CHECKING:
    from .user_data import UserData

# TensorFlow and Keras are imported inside the functions, as in `kdist.training.run`.


def split_name(name: str, *, what: str = "a model") -> tuple[str, str]:
    """Split `"my_model.py:build"` into `("my_model.py", "build")`.

    Raises:
        UserError: The name has a different form, or the file does not exist.
    """
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise UserError(f"{what} has to be given as FILE.py:FUNCTION, received {name}")
    if not os.path.isfile(path):  # unlike `Path`, accepts any text
        raise UserError(f"there is no file {path}: check the path")
    return path, function


def split_data_name(model: str, data: str) -> tuple[str, str]:
    """Split the name of a data function, whose file may be the model's file or a second file.

    Raises:
        UserError: A name has a different form, or a file does not exist.

    Examples:
        >>> split_data_name("my_model.py:build", "data")
        ('my_model.py', 'data')
    """
    if ":" in data or data.endswith(".py"):
        return split_name(data, what="a data function in a second file")
    return split_name(model)[0], data


def list_user_files(model: str, data: str) -> tuple[str, ...]:
    """Return the distinct files of a model and its data.

    Raises:
        UserError: As for `split_name`.
    """
    return tuple(dict.fromkeys([split_name(model)[0], split_data_name(model, data)[0]]))


_COLOR_CODES = re.compile(r"\x1b\[[0-9;]*m")
# Lines of Keras and TensorFlow that give the place of an error, before the line with its cause.
_LOCATION_LINES = re.compile(
    r"\s|$|Exception encountered when calling|Could not automatically infer|Graph execution error"
    r"|Detected at node|<stack traces|File \""
)
_TWO_STRATEGIES = "Mixing different tf.distribute.Strategy objects"
OWN_STRATEGY = (
    "the model is created in the scope of another strategy: remove the strategy from this file, as"
    " kdist creates the strategy"
)
"""Error message for a `build` that makes a strategy."""


def explain_exception(error: BaseException, *, plain: tuple[type[BaseException], ...] = ()) -> str:
    """Explain an exception in a line: its type, unless it is in `plain`, and its text."""
    if is_out_of_memory(error):
        return "out of memory"
    if _TWO_STRATEGIES in str(error):
        return OWN_STRATEGY
    lines = _COLOR_CODES.sub("", str(error)).splitlines()
    first = next((line for line in lines if not _LOCATION_LINES.match(line)), "").strip()
    if isinstance(error, (UserError, *plain)):
        return first
    return f"{type(error).__name__}: {first}"[:300]


@contextlib.contextmanager
def explain_user_errors(*paths: str) -> Iterator[None]:
    """Turn an exception that passed the user's code into a `UserError` with line and reason.

    Without `paths`, the model is kdist's, and every exception is raised as it is.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a script may end with `sys.exit()`
        line = _find_line(error)
        if not line or not _names_file(error, paths):
            raise
        raise UserError(f"{line}: {explain_exception(error)}") from error


def _names_file(error: BaseException, paths: Sequence[str]) -> bool:
    """Whether an exception has passed, or its text names, one of the files."""
    text = f"{error}{getattr(error, 'filename', '')}"
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    real = {os.path.realpath(file) for file in files}
    return any(path in text or os.path.realpath(path) in real for path in paths)


def _find_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and is_of_user(error.filename or ""):
        # A syntax error has no frame in the file.
        return format_code_line(error.filename or "", error.lineno or 0)
    return find_raising_user_line(error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserFunctions:
    """The functions that make the user's model and its data.

    Attributes:
        build: The function that makes the model.
        make_data: The function that makes the data.
        files: The distinct files of both functions.
        build_name: Name of `build`. The function itself may have no name, for example a `partial`.
        data_name: The name of `make_data`.
    """

    build: Callable[..., Any]
    make_data: Callable[..., Any]
    files: tuple[str, ...] = ()
    build_name: str = "build"
    data_name: str = "data"

    @property
    def takes_batch(self) -> bool:
        """Whether `make_data` takes `batch_size`; otherwise kdist makes the batches of arrays."""
        return has_parameter(self.make_data, "batch_size") and _accepts(
            self.make_data, batch_size=1
        )

    def make_model(self) -> Any:
        """Return the result of `build`.

        Raises:
            UserError: `build` raises an exception. The message names the line.
        """
        with explain_user_errors(*self.files):
            return self.build()

    def load_data(self, batch: int) -> "UserData":
        """Return the data, checked; a function that takes `batch_size` gets the global batch.

        Raises:
            UserError: `make_data` raises an exception, or `fit` does not take its result.
        """
        from .user_data import check_data_result

        arguments = {"batch_size": batch} if self.takes_batch else {}
        with explain_user_errors(*self.files):
            return check_data_result(self.make_data(**arguments))

    def check_batch(
        self, data: "UserData", batch: int | None, validation: int | None = None
    ) -> None:
        """Reject a batch size that the user passed for data that define their own batches.

        Args:
            data: The data.
            batch: Training samples per step and replica; `None` if not passed.
            validation: Validation samples per step and replica; `None` if not passed.

        Raises:
            UserError: A batch size would have no effect.
        """
        batch_sizes = {
            "batch-size": None if self.takes_batch else batch,
            "val-batch-size": validation,
        }
        source = f"{self.data_name}() of {self.files[-1]}" if self.files else "data"
        definition = f"def {self.data_name}(batch_size):"
        remedies = {
            "batch-size": f", or let the function take the size, as in `{definition}`",
            "val-batch-size": "",
        }
        for option, size in batch_sizes.items():
            if size is not None and not data.has_arrays:
                raise UserError(
                    f"received --{option} {size}, but {source} returns batches, not arrays: leave"
                    f" out the option{remedies[option]}"
                )


def load_functions(name: str, data: str) -> UserFunctions:
    """Load the functions that make a model and its data.

    Raises:
        UserError: A file does not have the function, or fails.
    """
    path, function = split_name(name)
    data_path, data_function = split_data_name(name, data)
    module = _load_module(Path(path))
    data_module = module if data_path == path else _load_module(Path(data_path))
    build = getattr(module, function, None)
    if not callable(build):
        raise UserError(
            f"{path} has no function {function}(): write a function that returns a model"
        )
    make_data = getattr(data_module, data_function, None)
    if not callable(make_data):
        raise UserError(
            f"{data_path} has no function {data_function}(): write a function that returns (x, y),"
            " (x_val, y_val), or name the function with --data"
        )
    functions = UserFunctions(
        build=build,
        make_data=make_data,
        files=tuple(dict.fromkeys([path, data_path])),
        build_name=function,
        data_name=data_function,
    )
    if not (functions.takes_batch or _accepts(make_data)):
        raise UserError(
            f"{data_path}: {data_function} has to take no argument, as in `def {data_function}():`,"
            f" or only the batch size, as in `def {data_function}(batch_size):`"
        )
    if not _accepts(build):
        raise UserError(
            f"{path}: {function} has to take no argument, as in `def {function}():`; a function for"
            f" KerasTuner may be `def {function}(hp=None):`"
        )
    return functions


def _accepts(function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:
        pass  # written in C, without a signature
    return True


def has_parameter(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function has a parameter of this name; `False` if Python cannot tell."""
    try:
        return parameter in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _load_module(path: Path) -> ModuleType:
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be imported: pass a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # The folder lets the file import its neighbors. The folder comes last if the file's name
        # would hide a package from all code.
        sys.path.insert(0 if name == path.stem else len(sys.path), folder)
    sys.modules[name] = module
    # An argparse call at the top of the file does not see the arguments of the command.
    hide_arguments = mock.patch.object(sys, "argv", [str(path)])
    with explain_user_errors(str(path)), hide_arguments:
        spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    """Return the name of a file's module: its stem, unless another module has it (`keras.py`)."""
    file = path.resolve()
    if file == _find_module_file(path.stem, otherwise=file):
        return path.stem
    return f"{path.stem} of {file.parent}".replace(".", "_")


def _find_module_file(name: str, *, otherwise: Path) -> Path:
    """Return the file that `import name` would load; `otherwise` if there is none."""
    try:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
    except ValueError:  # a module without a spec, such as `__main__`
        return Path(name)
    return otherwise if spec is None else Path(spec.origin or name).resolve()
