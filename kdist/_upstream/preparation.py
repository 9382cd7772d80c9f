"""What Keras tells the strategy of a model and its data before a step, and how it reads them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.trainers.trainer import Trainer

from . import executions
from .iterators import let_go_aside
from .names import has_call
from .replacing import replace


@replace(TensorFlowTrainer, "_maybe_symbolic_build")
def _prepare(
    original: Callable[..., Any], model: keras.Model, iterator: Any = None, data_batch: Any = None
) -> None:
    """Lets the strategy look at a model before Keras builds its optimizer and its functions."""
    prepare = getattr(model.distribute_strategy, "prepare", None)
    if prepare is not None:
        global_batch = _global_batch(iterator, data_batch)
        prepare(model, global_batch=global_batch)
        if iterator is not None:
            executions.choose(model, iterator, global_batch)
        if iterator is not None and data_batch is None:
            # Keras takes a batch from a throw-away iterator, whose read-ahead a generator loses.
            data_batch = _batch_spec(iterator, of_any_size=model.built)
            iterator = None if data_batch is not None else iterator
    if prepare is not None and not has_call(model):
        # Nothing to build by calling it; its layers and optimizers are built where its step is.
        return
    _thread.is_peeking = True
    try:
        original(model, iterator, data_batch)
    finally:
        _thread.is_peeking = False


@replace(Trainer, "_get_metrics_result_or_logs")
def _end_epoch(original: Callable[..., Any], model: keras.Model, logs: Any) -> Any:
    """Lets the strategy look at the model after an epoch."""
    epoch_ended = getattr(model.distribute_strategy, "epoch_ended", None)
    if epoch_ended is not None:
        epoch_ended(model)
    return original(model, logs)


def is_peeking() -> bool:
    """Whether Keras takes the mean of a batch over replicas, only to learn its shape."""
    return getattr(_thread, "is_peeking", False)


_thread = threading.local()


def _global_batch(iterator: Any, data_batch: Any) -> int | None:
    """Samples in a full batch of this data; `None` where the data does not say."""
    if iterator is None:
        return int(keras.tree.flatten(data_batch)[0].shape[0])
    if isinstance(iterator.data_adapter, ArrayDataAdapter):
        return int(iterator.data_adapter.batch_size)
    peeked = getattr(iterator.data_adapter, "_first_batches", None)  # of a generator
    if peeked:
        return int(keras.tree.flatten(peeked[0])[0].shape[0])
    dataset = getattr(iterator.data_adapter, "_dataset", None)
    return _batch_size(dataset) if isinstance(dataset, tf.data.Dataset) else None


def _batch_size(dataset: tf.data.Dataset) -> int | None:
    """As `batch` was told; `element_spec` does not tell unless incomplete batches are dropped."""
    if hasattr(dataset, "_batch_size"):
        return int(dataset._batch_size)
    kind = type(dataset).__name__.removeprefix("_").removesuffix("Dataset")
    if kind not in _KEEP_BATCHES:
        return None
    # A scalar beside a batch, a number to draw by for one, is none.
    sources = [s for s in dataset._inputs() if kind != "Zip" or not _is_of_scalars(s)]
    sizes = {_batch_size(source) for source in sources}
    return sizes.pop() if len(sizes) == 1 else None


def _is_of_scalars(dataset: tf.data.Dataset) -> bool:
    shapes = (getattr(leaf, "shape", None) for leaf in keras.tree.flatten(dataset.element_spec))
    return all(shape is not None and shape.rank == 0 for shape in shapes)


_KEEP_BATCHES = (
    *("AssertCardinality", "Cache", "Map", "Options", "ParallelMap", "Prefetch"),
    *("Repeat", "Shuffle", "Skip", "Take", "Zip"),
)


def _batch_spec(iterator: Any, *, of_any_size: bool) -> Any:
    """Shapes and types of a batch; `None` where they are not known.

    The size is a replica's, which a model that was built for the global batch need not take.
    """

    def part(leaf: Any) -> Any:
        one = getattr(leaf, "_value_specs", [leaf])[0]
        if of_any_size and isinstance(one, tf.TensorSpec) and one.shape.rank:
            return tf.TensorSpec([None, *one.shape[1:]], one.dtype)
        return one

    spec = keras.tree.map_structure(part, iterator._distributed_dataset.element_spec)
    known = all(
        isinstance(leaf, tf.TensorSpec | tf.SparseTensorSpec)
        and leaf.shape.rank is not None
        and leaf.shape[1:].is_fully_defined()
        for leaf in keras.tree.flatten(spec)
    )
    return spec if known else None


@replace(EpochIterator, "_enumerate_iterator")
def _without_a_spare(original: Callable[..., Any], epoch: Any) -> Iterator[Any]:
    """Keeps Keras from making an iterator at the end of an epoch that no epoch uses.

    On several replicas that is a tenth of a second, and starts to read ahead. Nor does Keras wait
    for the end of the one it has used.
    """
    for step in original(epoch):
        if _is_ours(epoch):
            let_go_aside(step[-1])
        yield step
        is_over = epoch._num_batches and epoch._steps_seen >= epoch._num_batches
        if is_over and epoch.steps_per_epoch is None and _is_ours(epoch):
            epoch._steps_seen = 0  # as Keras leaves it


def _is_ours(epoch: Any) -> bool:
    return hasattr(getattr(epoch, "_distribute_strategy", None), "prepare")
