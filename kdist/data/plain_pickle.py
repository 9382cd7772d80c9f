"""Read a pickle of plain data and NumPy arrays, without unpickling: nothing in it is run."""

import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

# What pickles of arrays call, by the names of all versions of Python and NumPy.
_ENCODE, _BYTES = "_codecs encode", "__builtin__ bytes"
_ARRAY = {f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")}
_DTYPE = "numpy dtype"
_KNOWN = {_ENCODE, _BYTES, _DTYPE, "numpy ndarray", *_ARRAY}


def read_plain_pickle(content: bytes) -> Any:
    """Return the value of a pickle of dictionaries, lists, tuples, texts, integers and byte arrays.

    The operations are read by `pickletools`, which runs none, and interpreted here. The only
    functions that may occur are those by which an array of bytes and a byte string are pickled;
    these are not called, but recognized. Texts of Python 2 become `bytes`.

    Args:
        content: The pickle, of protocol 2 or later.

    Returns:
        The value. Arrays are read-only, uint8.

    Raises:
        ValueError: It is damaged, or has anything else.

    Example:
        >>> read_plain_pickle(pickle.dumps({"labels": [3, 1]}, protocol=2))
        {'labels': [3, 1]}
    """
    reader = _Reader()
    try:
        for operation, argument, _ in pickletools.genops(content):
            if operation.name == "STOP":
                return reader.pop()
            reader.run(operation.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its operations do not fit together: {error}") from error
    raise ValueError("it has no end")


class _Function(str):
    """The name of a function that a pickle calls."""

    __slots__ = ()


class _Array:
    """An array that has no values yet."""


class _Dtype(str):
    """The type of an array's values."""

    __slots__ = ()


class _Reader:
    """The stack and the memory of a pickle's operations."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(_VALUES[name](argument))
        elif name in _OPERATIONS:
            _OPERATIONS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"it has the operation {name}, which plain data does not need")

    def pop(self) -> Any:
        if self._marks and self._marks[-1] == len(self._stack):
            raise ValueError("its operations do not fit together: nothing after a mark")
        return self._stack.pop()

    def marked(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def put(self, place: int) -> None:
        self._memory[place] = self._stack[-1]

    def memoize(self, _: Any) -> None:
        self.put(len(self._memory))

    def get(self, place: int) -> None:
        self._stack.append(self._memory[place])

    def append(self, _: Any) -> None:
        self._extend([self.pop()])

    def appends(self, _: Any) -> None:
        self._extend(self.marked())

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise TypeError("what is appended to is no list")
        self._stack[-1].extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._update([key, value])

    def set_items(self, _: Any) -> None:
        self._update(self.marked())

    def _update(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], dict) or len(values) % 2:
            raise TypeError("keys and values are for no dictionary")
        for key in values[::2]:  # a hash of deeply nested tuples would end the process
            _check_text(key)
        self._stack[-1].update(zip(values[::2], values[1::2], strict=True))

    def tuple_of(self, count: int, _: Any) -> None:
        values = [self.pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))

    def tuple_marked(self, _: Any) -> None:
        self._stack.append(tuple(self.marked()))

    def function(self, name: str) -> None:
        if name not in _KNOWN:
            raise ValueError(f"it would call {name.replace(' ', '.')[:100]!r}, which no data needs")
        self._stack.append(_Function(name))

    def named_function(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        _check_text(name, module)
        self.function(f"{module} {name}")

    def reduce(self, _: Any) -> None:
        arguments, name = self.pop(), self.pop()
        if not isinstance(name, _Function) or not isinstance(arguments, tuple):
            raise TypeError("what is called is no function")
        if name in _ARRAY:
            self._stack.append(_Array())
        elif name == _DTYPE:
            name = arguments[0]  # Python 2's texts are bytes
            _check_text(name)
            self._stack.append(_Dtype(name.decode() if isinstance(name, bytes) else name))
        elif name == _ENCODE and arguments[1:] == ("latin1",):
            self._stack.append(arguments[0].encode("latin1"))
        elif name == _BYTES and not arguments:  # Python 3's empty bytes in protocol 2
            self._stack.append(b"")
        else:
            raise TypeError(f"{name} is not called so")

    def build(self, _: Any) -> None:
        state, built = self.pop(), self._stack[-1]
        if isinstance(built, _Array):
            array = self._stack[-1] = _array(state)
            self._memory = {at: array if one is built else one for at, one in self._memory.items()}
        elif not isinstance(built, _Dtype):  # whose state is its byte order
            raise TypeError("what is built is no array")


def _array(state: Any) -> npt.NDArray[np.uint8]:
    _, shape, dtype, by_column, content = state
    if dtype != "u1" or by_column or not isinstance(content, bytes):
        raise ValueError("an array in it is not of unsigned bytes, row by row")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _check_text(*values: Any) -> None:
    if not all(isinstance(value, str | bytes) for value in values):
        raise TypeError("a key or a name is no text")


def _bytes(text: str) -> bytes:
    return text.encode("latin1")  # as pickletools has decoded them


def _same(value: Any) -> Any:
    return value


_VALUES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(["BINSTRING", "SHORT_BINSTRING"], _bytes),
    **dict.fromkeys(["BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE"], _same),
    **dict.fromkeys(["BININT", "BININT1", "BININT2", "LONG1"], _same),
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
}
_OPERATIONS: dict[str, Callable[[_Reader, Any], None]] = {
    "MARK": _Reader.mark,
    **dict.fromkeys(["BINPUT", "LONG_BINPUT"], _Reader.put),
    **dict.fromkeys(["BINGET", "LONG_BINGET"], _Reader.get),
    "MEMOIZE": _Reader.memoize,
    "APPEND": _Reader.append,
    "APPENDS": _Reader.appends,
    "SETITEM": _Reader.set_item,
    "SETITEMS": _Reader.set_items,
    "TUPLE": _Reader.tuple_marked,
    "TUPLE1": lambda reader, _: reader.tuple_of(1, _),
    "TUPLE2": lambda reader, _: reader.tuple_of(2, _),
    "TUPLE3": lambda reader, _: reader.tuple_of(3, _),
    "GLOBAL": _Reader.function,
    "STACK_GLOBAL": _Reader.named_function,
    "REDUCE": _Reader.reduce,
    "BUILD": _Reader.build,
}
