"""Options of command lines: of settings, plain ones, and files of settings."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from kdist.fields import Field, IsFolder

from .cases import Case
from .odd_values import ODD_NUMBERS, ODD_PATHS, ODD_TEXTS, READ_PATHS
from .settings_files import files, ordinary


@st.composite
def setting_options(draw: st.DrawFn, fields: Mapping[str, Field], *, most: int = 4) -> list[str]:
    """Options of settings, most of them with values that they take."""
    names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=most))
    found = []
    for name in names:
        field, option = fields[name], f"--{name.replace('_', '-')}"
        if field.kind is bool and draw(st.integers(0, 9)):
            found.append(draw(st.sampled_from([option, f"--no-{option[2:]}"])))
            continue
        value = str(draw(ordinary(field) | ordinary(field) | _odd(field)))
        found += draw(st.sampled_from([[option, value], [f"{option}={value}"]]))
    return found


def _odd(field: Field) -> st.SearchStrategy[str]:
    if field.has(IsFolder):
        return ODD_PATHS
    return ODD_NUMBERS if field.kind in (int, float) else ODD_TEXTS


@st.composite
def plain_options(draw: st.DrawFn, options: Mapping[str, Any], *, most: int = 3) -> list[str]:
    """Options with a strategy for their values each; `None` for flags."""
    names = draw(st.lists(st.sampled_from(sorted(options)), max_size=most))
    values = [None if options[name] is None else draw(options[name]) for name in names]
    return [part for pair in zip(names, values, strict=True) for part in pair if part is not None]


@st.composite
def with_file(
    draw: st.DrawFn, arguments: list[str], option: str, values: st.SearchStrategy[dict[str, Any]]
) -> Case:
    """The arguments, every other time with a file of settings or an odd path."""
    match draw(st.integers(0, 5)):
        case 0 | 1:
            name, content = draw(files(values))
            return Case([*arguments, option, name], {name: content})
        case 2:
            return Case([*arguments, option, draw(READ_PATHS)])
    return Case(arguments)
