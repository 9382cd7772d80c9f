"""Settings files with odd values in them, and files that are none."""

import json
from typing import Any

from hypothesis import strategies as st
from kdist.fields import Field, fields_of
from kdist.training.config import TrainConfig

from .odd_values import ODD_PATHS, ODD_TEXTS

_SINGLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ODD_TEXTS
    | ODD_PATHS
    | st.sampled_from([10**20, 10**40, -(10**20), 2**63, 3, 0, 1e308, 1e-320])
)
ODD_VALUES = st.recursive(
    _SINGLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=4,
)
FIELDS = {field.name: field for field in fields_of(TrainConfig)}


def ordinary(field: Field) -> st.SearchStrategy[Any]:
    """Values that a setting takes, most of them."""
    if field.choices:
        return st.sampled_from(field.choices)
    if field.kind is bool:
        return st.booleans()
    if field.kind is int:
        return st.sampled_from([1, 2, 10, 16, 64])
    return st.sampled_from([0.5, 0.1, 1e-3]) if field.kind is float else ODD_TEXTS


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """Names and values, few of them odd."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True))
    values = {name: draw(ordinary(FIELDS[name]) | ODD_VALUES) for name in names}
    return values | draw(st.dictionaries(ODD_TEXTS, ODD_VALUES, max_size=1))


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    """Search spaces: for each setting choices, a range, or something odd."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True))
    numbers = st.integers(-2, 70) | st.floats(width=32) | ODD_VALUES
    keys = st.sampled_from(["min", "max", "step", "sampling"])
    kinds = (
        st.lists(numbers, max_size=3),
        st.dictionaries(keys, numbers | st.sampled_from(["linear", "log"]), max_size=4),
        st.fixed_dictionaries({"min": st.integers(1, 5), "max": st.integers(5, 10**9)}),
        ODD_VALUES,
    )
    return {name: draw(st.one_of(*kinds)) for name in names}


@st.composite
def files(draw: st.DrawFn, values: st.SearchStrategy[dict[str, Any]]) -> tuple[str, bytes]:
    """The name and content of a file of settings, sometimes damaged."""
    as_json = draw(st.booleans())
    chosen = draw(values)
    text = as_json_text(chosen) if as_json else as_toml(chosen)
    content = text.encode("utf-8", "surrogatepass")
    return f"given.{'json' if as_json else 'toml'}", draw(damaged(content))


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content as it is, or changed so that it may be no such file any more."""
    text = content.decode("utf-8", "replace")
    return st.just(content) | st.sampled_from(
        [
            *[b"", b"\xef\xbb\xbf" + content, content[: len(content) // 2], content + content],
            *[content.replace(b"1", b"\xff"), b"\0" + content, text.encode("utf-16")],
            *[b"[" * 100_000, b"a = " + b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000],
            *[b"a = " + b"[" * 60 + b"]" * 60, b'{"a":' * 60 + b"1" + b"}" * 60],
            *[b"width = 0x" + b"f" * 5000, b"width = " + b"9" * 5000, b"track = 3", b"[]", b"1"],
            *[b"epochs = 1979-05-27", b"run_dir = 07:32:00", b"[width]\n", b"[[width]]\n", b"null"],
            *[b"a.b = 1", b"epochs = nan", b"#" * 2**25],
        ]
    )


def as_json_text(value: Any) -> str:
    """JSON, which Python writes with NaN and Infinity."""
    return json.dumps(value)


def as_toml(values: dict[str, Any]) -> str:
    """TOML, a line for each value; `None`, which it lacks, is an empty text."""
    return "".join(f"{json.dumps(name)} = {_toml(value)}\n" for name, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        parts = (f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps("" if value is None else value).replace("NaN", "nan").replace("Inf", "inf")
