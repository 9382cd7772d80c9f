"""`ReplicaAttributes`: separate the replicas' tensors in attributes of layers."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

Attributes = list[dict[str, Any]]
"""For each layer, the attributes that are or contain tensors."""


class ReplicaAttributes:
    """The tensors that one replica has stored in attributes of the layers, which replicas share.

    Replicas are traced in threads that take turns at every collective. Without this class, a tensor
    stored by one replica (a mask, an added loss, a value for a later layer) would be read by the
    next.

    Args:
        layers: The model and all its layers before the step, which is where each replica starts.
    """

    def __init__(self, layers: Sequence[keras.layers.Layer]) -> None:
        self._layers = layers
        self._before = [{name: _copy(value) for name, value in vars(one).items()} for one in layers]
        for attributes in self._before:
            attributes["_losses"] = []  # losses of an earlier step are of another graph

    def snapshot(self) -> Attributes:
        """Return the attributes that contain tensors now."""
        return [
            {name: _copy(value) for name, value in vars(one).items() if _contains_tensor(value)}
            for one in self._layers
        ]

    def restore(self, snapshot: Attributes | None = None) -> None:
        """Restore the attributes to a snapshot, or to those before the step."""
        snapshot = snapshot or [{} for _ in self._layers]
        for layer, saved, before in zip(self._layers, snapshot, self._before, strict=True):
            values = vars(layer)
            current = [name for name, value in values.items() if _contains_tensor(value)]
            for name in {*current, *saved}:
                if name in saved or name in before:
                    values[name] = _replace(values.get(name), saved.get(name, before.get(name)))
                else:
                    del values[name]


def _contains_tensor(value: Any) -> bool:
    if isinstance(value, tf.Tensor):
        return True
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return any(
        isinstance(item, tf.Tensor | list | tuple) and _contains_tensor(item) for item in value
    )


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    return dict(value) if isinstance(value, dict) else value


def _replace(old: Any, value: Any) -> Any:
    """Change lists and dicts in place: other objects may refer to them."""
    if isinstance(old, list) and isinstance(value, list):
        list.__setitem__(old, slice(None), value)
        return old
    if isinstance(old, dict) and isinstance(value, dict):
        dict.clear(old)
        dict.update(old, value)
        return old
    return value
