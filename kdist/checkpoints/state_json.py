"""A state as JSON that reads back as it was, its arrays beside it."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(state: Any, *, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value that `json.dumps` takes and `from_json` turns back.

    Args:
        state: None, booleans, numbers, text, bytes, NumPy arrays and numbers, tensors; and lists,
            tuples and dictionaries of these.
        name: What the state is of, which begins the names of its arrays.
        arrays: Gets copies of the arrays.

    Raises:
        TypeError: The state has a value of another type; the message says where.
    """
    if state is None or type(state) in (bool, int, float, str):
        return state
    if hasattr(state, "numpy"):
        state = state.numpy()
    if isinstance(state, np.ndarray) and state.dtype.kind not in "OSUMm":
        arrays[name] = np.array(state)  # which its owner may change while it is written
        return {"$array": name}
    if isinstance(state, np.generic) and state.dtype.kind not in "OSUMm":
        return {"$number": [state.dtype.name, base64.b64encode(state.tobytes()).decode()]}
    if isinstance(state, bytes):
        return {"$bytes": base64.b64encode(state).decode()}
    if type(state) in (list, tuple):
        items = [to_json(v, name=f"{name}/{i}", arrays=arrays) for i, v in enumerate(state)]
        return items if isinstance(state, list) else {"$tuple": items}
    if isinstance(state, Mapping):
        return _dict_to_json(state, name, arrays)
    raise TypeError(f"{name} is of the type {type(state).__name__}, which cannot be saved")


def from_json(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the state that `to_json` was given.

    Args:
        value: What `to_json` returned.
        arrays: What it put into `arrays`; each array in the state is its own copy.
    """
    if isinstance(value, list):
        return [from_json(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: from_json(item, arrays) for key, item in value.items()}
    [(kind, content)] = value.items()
    if kind == "$array":
        return np.array(arrays[content])
    if kind == "$number":
        return np.frombuffer(base64.b64decode(content[1]), np.dtype(content[0]))[0]
    if kind == "$bytes":
        return base64.b64decode(content)
    if kind == "$tuple":
        return tuple(from_json(item, arrays) for item in content)
    return {from_json(k, arrays): from_json(v, arrays) for k, v in content}  # $dict


def json_line(value: Any) -> str:
    """Return JSON without spaces; `json.loads` gives the same numbers bit for bit."""
    return json.dumps(value, separators=(",", ":"))


def _dict_to_json(state: Mapping[Any, Any], name: str, arrays: dict[str, np.ndarray]) -> Any:
    items = [
        (
            to_json(k, name=f"{name}/key", arrays=arrays),
            to_json(v, name=f"{name}/{k}", arrays=arrays),
        )
        for k, v in state.items()
    ]
    if all(isinstance(key, str) and not key.startswith("$") for key in state):
        return dict(items)
    return {"$dict": items}
