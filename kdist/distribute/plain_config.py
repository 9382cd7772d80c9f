"""`plain_config`: Keras's serialized objects without what may differ between workers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

# Names and identities that depend on what a process has made before; seeds and first values of
# weights, which are the chief's on all workers; what is in the weights anyway.
_LEFT_OUT = ("name", "seed", "shared_object_id", "build_config", "compile_config")
_POLICY = "DTypePolicy"  # its name is all that it is
_GRAPH = ("input_layers", "output_layers", "keras_history")
_LONGEST_LIST = 32
PATH, LAMBDA = "a path", "lambda"


def plain_config(value: Any, layers: Mapping[str, str] | None = None) -> Any:
    """Return what Keras's `serialize_keras_object` or `get_config` gives, for comparison.

    Left out are names, seeds, initializers, paths of files, and the code of lambdas. Layers of a
    model's graph are named by their place; long lists are described by their length and a digest,
    or by the sum of their absolute values, which rounding does not change.

    Args:
        value: What Keras has serialized, or a part of it.
        layers: Of the names of the model's layers, those by their places.
    """
    if isinstance(value, Mapping):
        return _plain_object(value, layers or {})
    if isinstance(value, list | tuple):
        return _plain_list(value, layers or {})
    if isinstance(value, str):
        return PATH if "/" in value or "\\" in value else value
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "tolist"):  # NumPy's
        return plain_config(value.tolist(), layers)
    return type(value).__name__


def _plain_object(value: Mapping[Any, Any], layers: Mapping[str, str]) -> Any:
    if "class_name" not in value or "config" not in value:
        return _plain_settings(value, layers)
    kind, config = value["class_name"], value["config"]
    if kind == "__lambda__":
        return LAMBDA
    if not isinstance(config, Mapping):  # a function, which has a name
        return plain_config(config, layers)
    if str(kind).endswith(_POLICY) and "name" in config:
        return str(config["name"])
    others = {name: value[name] for name in ("inbound_nodes",) if name in value}
    return {"class": kind, **_plain_settings(config, layers), **_plain_settings(others, layers)}


def _plain_settings(value: Mapping[Any, Any], layers: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(value.get("layers"), list):
        layers = {name: f"layer {at}" for at, name in enumerate(map(_name, value["layers"]))}
    return {
        str(name): _renamed(one, layers) if name in _GRAPH else plain_config(one, layers)
        for name, one in value.items()
        if name not in _LEFT_OUT and not str(name).endswith("initializer")
    }


def _name(layer: Any) -> str:
    config = layer.get("config") if isinstance(layer, Mapping) else None
    return str(config.get("name") if isinstance(config, Mapping) else None)


def _renamed(value: Any, layers: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _renamed(one, layers) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one, layers) for one in value]
    return layers.get(value, value) if isinstance(value, str) else value


def _plain_list(value: Sequence[Any], layers: Mapping[str, str]) -> Any:
    numbers = _numbers(value)
    if len(numbers) > _LONGEST_LIST and any(isinstance(one, float) for one in numbers):
        return {"numbers": len(numbers), "sum of absolute values": sum(map(abs, numbers))}
    plain = [plain_config(one, layers) for one in value]
    if len(plain) > _LONGEST_LIST and not any(isinstance(one, dict | list) for one in plain):
        return {"length": len(plain), "digest": digest(plain)}
    return plain


def _numbers(value: Any) -> list[float]:
    """Return the numbers of nested lists; none if there is anything else in them."""
    if isinstance(value, int | float):
        return [value]
    found: list[float] = []
    for one in value if isinstance(value, list | tuple) else [None]:
        inner = _numbers(one) if one is not None else []
        if not inner:
            return []
        found += inner
    return found


def digest(value: Any) -> str:
    """Return a short text that differs where two values do that JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
