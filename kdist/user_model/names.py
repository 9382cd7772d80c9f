"""Names of a user's functions on the command line, such as `my_model.py:build`."""

import os

from ..errors import UserError


def split_name(name: str, *, what: str = "a model") -> tuple[str, str]:
    """Split `"my_model.py:build"` into `("my_model.py", "build")`.

    Args:
        name: What the user has written.
        what: What it names, for the error message.

    Raises:
        UserError: The name has another form, or the file does not exist.
    """
    path, _, function = name.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise UserError(f"{what} has to be given as FILE.py:FUNCTION, received {name}")
    if not os.path.isfile(path):  # unlike `Path`, also of a path that no file can have
        raise UserError(f"there is no file {path}: pass FILE.py:FUNCTION")
    return path, function


def data_name(model: str, data: str) -> tuple[str, str]:
    """Split the name of a data function, which may be in the model's file or in another.

    Args:
        model: `"FILE.py:FUNCTION"` of the model.
        data: `"FUNCTION"` in the same file, or `"FILE.py:FUNCTION"`.

    Returns:
        The file and the function.

    Raises:
        UserError: A name has another form, or a file does not exist.

    Example:
        >>> data_name("my_model.py:build", "data")
        ('my_model.py', 'data')
    """
    if ":" in data or data.endswith(".py"):
        return split_name(data, what="data in another file than the model")
    return split_name(model)[0], data


def files_of(model: str, data: str) -> tuple[str, ...]:
    """Return the files of a model and of its data: one, or two.

    Raises:
        UserError: As in `data_name`.
    """
    return tuple(dict.fromkeys([split_name(model)[0], data_name(model, data)[0]]))
