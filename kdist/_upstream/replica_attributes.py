"""Tensors that layers keep in attributes, each replica's own."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

Attributes = list[dict[str, Any]]
"""By layer, the attributes that are tensors or hold some."""


class ReplicaAttributes:
    """What one replica has kept in the attributes of layers, which all replicas share.

    Replicas are traced in threads that take turns at every collective, so that a tensor which a
    layer keeps (a mask, an added loss, something for a layer further on) would be the next one's.

    Args:
        layers: The model and every layer in it, as they are before the step: every replica's trace
            begins there.
    """

    def __init__(self, layers: Sequence[keras.layers.Layer]) -> None:
        self._layers = layers
        self._before = [
            {name: _copied(value) for name, value in vars(one).items()} for one in layers
        ]
        for attributes in self._before:
            attributes["_losses"] = []  # what an earlier step added is of another graph

    def kept(self) -> Attributes:
        """The attributes that hold a tensor now."""
        return [
            {name: _copied(value) for name, value in vars(one).items() if _holds_tensor(value)}
            for one in self._layers
        ]

    def restore(self, kept: Attributes | None = None) -> None:
        """Have the layers hold again what `kept` returned, or what they held before the step."""
        kept = kept or [{} for _ in self._layers]
        for layer, own, before in zip(self._layers, kept, self._before, strict=True):
            values = vars(layer)
            held = [name for name, value in values.items() if _holds_tensor(value)]
            for name in {*held, *own}:
                if name in own or name in before:
                    values[name] = _put(values.get(name), own.get(name, before.get(name)))
                else:
                    del values[name]


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, tf.Tensor):
        return True
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return any(isinstance(item, tf.Tensor | list | tuple) and _holds_tensor(item) for item in value)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    return dict(value) if isinstance(value, dict) else value


def _put(place: Any, value: Any) -> Any:
    """Lists and dicts keep their identity, as others may hold them too."""
    if isinstance(place, list) and isinstance(value, list):
        list.__setitem__(place, slice(None), value)
        return place
    if isinstance(place, dict) and isinstance(value, dict):
        dict.clear(place)
        dict.update(place, value)
        return place
    return value
