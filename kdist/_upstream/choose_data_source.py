"""Which kind of data a fit trains on."""

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from .data_sources import DatasetSource, DataSource, EpochSource
from .dataset_state import dataset_state, has_unknown_parts, inexact_part
from .fits import Fit, running_fit, source_of
from .py_dataset_source import PyDatasetSource


def data_source_of(fit: Fit) -> DataSource:
    """The training data of a fit, as they can be brought to a batch of an epoch."""
    adapter, dataset = fit.iterator.data_adapter, source_of(fit.iterator)
    if fit.data is not None and dataset is fit.data.dataset:
        return EpochSource(fit)
    if isinstance(adapter, PyDatasetAdapter):
        return PyDatasetSource(fit)
    if isinstance(adapter, GeneratorDataAdapter) or not isinstance(dataset, tf.data.Dataset):
        return DataSource(fit, inexact=_DRAWN)
    state = dataset_state(dataset)
    if isinstance(adapter, ArrayDataAdapter):
        inexact = _ARRAYS if inexact_part(dataset) else None
    else:
        inexact = _inexact(dataset)
    return DatasetSource(fit, inexact=inexact, state=state)


def array_sizes(model: keras.Model) -> dict[str, int] | None:
    """Samples and batch size of the arrays that a fit trains on; `None` for other data."""
    fit = running_fit(model)
    adapter = None if fit is None or fit.iterator is None else fit.iterator.data_adapter
    if not isinstance(adapter, ArrayDataAdapter):
        return None
    batch, last = adapter.batch_size, adapter.partial_batch_size or 0
    whole = adapter.num_batches - bool(last)
    return {"batch_size": int(batch), "samples": int(whole * batch + last)}


def _inexact(dataset: tf.data.Dataset) -> str | None:
    part = inexact_part(dataset)
    if part is not None:
        return (
            "The batches of this tf.data.Dataset are not those of the interrupted training, as"
            f" {part}"
        )
    return _UNKNOWN if has_unknown_parts(dataset) else None


_ARRAYS = (
    "These arrays are shuffled without a seed, so that their order is not that of the interrupted"
    " training: call keras.utils.set_random_seed before fit, or pass shuffle=False"
)
_DRAWN = (
    "The batches are those of the interrupted training if the data give the same in every run:"
    " they are read again from the beginning"
)
_UNKNOWN = (
    "The batches of this tf.data.Dataset are those of the interrupted training if its Python"
    " functions, and what else is not of tf.data, give the same in every run"
)
