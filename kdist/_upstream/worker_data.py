"""What the workers compare of their data, and of the arguments of `fit`."""

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from keras.src.trainers import data_adapters

_ARGUMENTS = ("epochs", "initial_epoch", "validation_freq")
_OWN = (tf.data.experimental.AutoShardPolicy.OFF, tf.data.experimental.AutoShardPolicy.FILE)
# The others take their own order, whatever `shuffle` is.
_SHUFFLED = (data_adapters.ArrayDataAdapter, data_adapters.PyDatasetAdapter)


def fit_arguments(fit: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a call of `fit` that have to be the same on all workers."""
    try:
        given = inspect.signature(fit).bind(*args, **options)
    except TypeError:  # which the call will raise
        return {}
    given.apply_defaults()
    found = given.arguments
    is_validated = found.get("validation_data") is not None or bool(found.get("validation_split"))
    return {
        "validation_data": "given" if is_validated else "not given",
        **{name: plain(found.get(name)) for name in _ARGUMENTS},
    }


def described_data(adapter: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the data of an iterator where their shapes do not say it.

    Args:
        adapter: Keras's adapter of the data.
        options: With which the iterator was made.
    """
    found: dict[str, Any] = {}
    if not isinstance(adapter, data_adapters.TFDatasetAdapter):
        found["the batch size"] = plain(adapter.batch_size)
        found["the number of rows"] = _rows(adapter)
    if isinstance(adapter, _SHUFFLED):
        found["shuffle"] = plain(options.get("shuffle"))
    weights = options.get("class_weight")
    found["class_weight"] = weights and {str(name): float(one) for name, one in weights.items()}
    return found


def is_dealt_out(dataset: Any) -> bool:
    """Whether every worker reads all of a dataset, and keeps its part of each batch."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    return dataset.options().experimental_distribute.auto_shard_policy not in _OWN


def plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if value is None or isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return str(value)


def _rows(adapter: Any) -> int | None:
    batch, batches = adapter.batch_size, adapter.num_batches
    if not batch or not batches:
        return None
    return int((batches - 1) * batch + (adapter.partial_batch_size or batch))
