"""Replace the sublayers of a built layer."""

from collections.abc import Callable
from typing import Any

import keras

Convert = Callable[[Any], Any]


def replace_sublayers(owner: Any, convert: Convert) -> None:
    """Replace the layers in a layer's attributes, including Keras's list of sublayers."""
    for name, value in list(vars(owner).items()):
        new = _replace(value, convert)
        if new is not value:
            # Not `setattr`: Keras rejects new sublayers in a built layer.
            object.__setattr__(owner, name, new)


def _replace(value: Any, convert: Convert) -> Any:
    # Lists and dicts are changed in place, so that Keras still tracks them.
    if isinstance(value, keras.Layer):
        return convert(value)
    if isinstance(value, list):
        for index, item in enumerate(value):
            list.__setitem__(value, index, _replace(item, convert))
    elif isinstance(value, dict):
        for key, item in value.items():
            dict.__setitem__(value, key, _replace(item, convert))
    elif isinstance(value, tuple) and any(isinstance(item, keras.Layer) for item in value):
        items = (_replace(item, convert) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
