"""Fields of settings: their types, bounds and help texts, and checks of their values."""

import dataclasses
import functools
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import docstring_parser
from annotated_types import Ge, Gt, Le, Lt, MaxLen

from .arguments import as_integer, as_real, local_path
from .errors import UserError
from .remote import folder_address


@dataclasses.dataclass(frozen=True)
class IsFolder:
    """Marks a field that is the path of a folder."""

    may_be_remote: bool = False


Folder = Annotated[str, IsFolder()]
LocalOrRemoteFolder = Annotated[str, IsFolder(may_be_remote=True)]

_BOUNDS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Ge: ("at least", operator.ge),
    Gt: ("above", operator.gt),
    Le: ("at most", operator.le),
    Lt: ("below", operator.lt),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """A setting of a dataclass.

    Attributes:
        name: Name of the setting.
        group: Title of the group.
        help: Help text, one or two sentences.
        kind: `bool`, `int`, `float`, `str`, or a `Literal` of the choices.
        is_list: Whether the setting has several values; in text, commas separate the values.
        is_optional: Whether the value may be `None`.
        marks: Annotations of the type: bounds (`annotated_types`) of the value or of each value,
            the maximum number of values (`MaxLen`), `IsFolder`.
        default: Default value.
    """

    name: str
    group: str
    help: str
    kind: Any
    is_list: bool
    is_optional: bool
    marks: Sequence[Any]
    default: Any

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values; empty if any value of the type is allowed."""
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is Literal else ()

    @property
    def default_text(self) -> str:
        """The default as the text of a command line option; empty without a default."""
        if self.default is None or self.default is dataclasses.MISSING:
            return ""
        return ",".join(map(str, self.default)) if self.is_list else str(self.default)

    @property
    def bounds(self) -> str:
        """The bounds as text, such as `at least 0 and below 1`, or `from 1 to 64`."""
        marks = {type(mark): mark for mark in self.marks if type(mark) in _BOUNDS}
        written = {kind: self._format_number(_bound_of(mark)) for kind, mark in marks.items()}
        if written.keys() == {Ge, Le}:
            return f"from {written[Ge]} to {written[Le]}"
        return " and ".join(f"{_BOUNDS[kind][0]} {limit}" for kind, limit in written.items())

    def has_mark(self, mark: type) -> bool:
        """Whether the setting's type has an annotation of this class."""
        return any(isinstance(found, mark) for found in self.marks)

    def check(self, value: Any) -> Any:
        """Check a value, and return it as plain Python data.

        Raises:
            UserError: The value has the wrong type or is out of bounds. The message names the
                setting.
        """
        if value is None and self.is_optional:
            return None
        return self._check_values(value) if self.is_list else self._check_value(value)

    def _check_values(self, value: Any) -> list[Any]:
        """Check every value, and reject repeated values; integers from a text are sorted."""
        is_text = isinstance(value, str)
        words = [word.strip() for word in value.split(",")] if is_text else value
        example = f", such as {self.default_text}" if self.default_text else ""
        most = next((mark.max_length for mark in self.marks if isinstance(mark, MaxLen)), math.inf)
        if not isinstance(words, Sequence) or not 0 < len(words) <= most:
            number = "one value or more" if most == math.inf else f"1 to {most} values"
            raise UserError(f"{self.name} takes {number}{example}, received {value!r}")
        if is_text and self.kind is int:
            if not all(re.fullmatch("[+-]?[0-9]{1,12}", word) for word in words):
                raise UserError(
                    f"{self.name} takes integers separated by commas{example}, received {value!r}"
                )
            words = sorted(map(int, words))
        values = [self._check_value(word) for word in words]
        for item in values:
            if values.count(item) > 1:
                raise UserError(f"{self.name} received {item} twice: pass every value once")
        return values

    def _check_value(self, value: Any) -> Any:
        if self.choices:
            if value not in self.choices:
                raise UserError(
                    f"{self.name} has to be one of {', '.join(self.choices)}; received {value}"
                )
            return value
        if self.kind is bool:
            if not isinstance(value, bool):
                words = "True, False or None" if self.is_optional else "True or False"
                raise UserError(f"{self.name} has to be {words}, received {value!r}")
            return value
        if self.has_mark(IsFolder):
            is_local = IsFolder() in self.marks
            return (local_path if is_local else folder_address)(self.name, value)
        if self.kind is str and not isinstance(value, str):
            raise UserError(f"{self.name} has to be a text, received {value!r}")
        return self._check_number(value) if self.kind in (int, float) else value

    def _check_number(self, value: Any) -> int | float:
        whole = self.kind is int
        number = as_integer(value) if whole else as_real(value)
        if number is None:
            kind = "an integer" if whole else "a number"
            raise UserError(f"{self.name} has to be {kind}, received {value!r}")
        limits = [mark for mark in self.marks if type(mark) in _BOUNDS]
        is_within = all(_BOUNDS[type(mark)][1](number, _bound_of(mark)) for mark in limits)
        if not is_within or not math.isfinite(number):
            bounds = self.bounds
            if not whole and not self.has_mark(Lt) and not self.has_mark(Le):
                bounds = f"{bounds} and finite" if bounds else "finite"
            raise UserError(
                f"{self.name} has to be {bounds}, received {self._format_number(number)}"
            )
        return number

    def _format_number(self, number: float) -> str:
        return format(number, "" if self.kind is int else "g")


def _bound_of(mark: Any) -> Any:
    return getattr(mark, type(mark).__name__.lower())


@functools.cache
def fields_of(settings: Any) -> tuple[Field, ...]:
    """Return the settings of a dataclass, group by group: every base class is a group.

    If several classes define a setting, the last subclass counts.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    found: dict[str, Field] = {}
    for group in reversed(settings.__mro__):
        if not dataclasses.is_dataclass(group):
            continue
        docs = docstring_parser.parse(group.__doc__ or "")
        helps = {
            param.arg_name: " ".join((param.description or "").split()) for param in docs.params
        }
        title = (docs.short_description or "").rstrip(".")
        for name in vars(group).get("__annotations__", {}):
            if name in defaults:
                kind, marks, is_optional = _split_hint(hints[name])
                is_list = typing.get_origin(kind) is Sequence
                if is_list:
                    kind, item_marks, _ = _split_hint(*typing.get_args(kind))
                    marks = [*marks, *item_marks]
                found[name] = Field(
                    name=name,
                    group=title,
                    help=helps.get(name, ""),
                    kind=kind,
                    is_list=is_list,
                    is_optional=is_optional,
                    marks=marks,
                    default=defaults[name],
                )
    return tuple(found.values())


def _split_hint(hint: Any) -> tuple[Any, list[Any], bool]:
    """Split a type hint into the plain type, its annotations, and whether it may be `None`."""
    if typing.get_origin(hint) is Annotated:
        inner, *marks = typing.get_args(hint)
        kind, inner_marks, is_optional = _split_hint(inner)
        return kind, [*marks, *inner_marks], is_optional
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        kind, marks, _ = _split_hint(inner)
        return kind, marks, True
    return hint, [], False


def field_names(*groups: type) -> frozenset[str]:
    """Return the names of all settings in the groups."""
    return frozenset(field.name for group in groups for field in dataclasses.fields(group))


def folder_names(*groups: type) -> frozenset[str]:
    """Return the names of the settings in the groups that are folder paths."""
    fields = [field for group in groups for field in fields_of(group)]
    return frozenset(field.name for field in fields if field.has_mark(IsFolder))


def check_fields(settings: Any) -> None:
    """Check every value of a frozen settings object, and replace it by plain Python data.

    Raises:
        UserError: A value has the wrong type or is out of bounds. The message names the setting.
    """
    kind: Any = type(settings)
    for field in fields_of(kind):
        object.__setattr__(settings, field.name, field.check(getattr(settings, field.name)))
