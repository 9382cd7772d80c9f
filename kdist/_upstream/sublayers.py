"""Other layers in the place of a built layer's own."""

from collections.abc import Callable
from typing import Any

import keras

Convert = Callable[[Any], Any]


def replace_sublayers(owner: Any, convert: Convert) -> None:
    """Replace layers in the attributes of a layer, Keras's list of its sublayers included."""
    for name, value in list(vars(owner).items()):
        new = _replaced(value, convert)
        if new is not value:
            # Keras refuses new sublayers in a built layer; this one takes another's place.
            object.__setattr__(owner, name, new)


def _replaced(value: Any, convert: Convert) -> Any:
    # Lists and dicts keep their identity, and the place of Keras's own tracking of them.
    if isinstance(value, keras.Layer):
        return convert(value)
    if isinstance(value, list):
        for index, item in enumerate(value):
            list.__setitem__(value, index, _replaced(item, convert))
    elif isinstance(value, dict):
        for key, item in value.items():
            dict.__setitem__(value, key, _replaced(item, convert))
    elif isinstance(value, tuple) and any(isinstance(item, keras.Layer) for item in value):
        items = (_replaced(item, convert) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
