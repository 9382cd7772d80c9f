"""The running fits, and their data."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

_NAME = "_kdist_fit_data"


def attach_fit_data(dataset: tf.data.Dataset, data: Any) -> None:
    """Record that a data set has the batches of `EpochBatches`, of any epoch and position."""
    setattr(dataset, _NAME, data)


def get_fit_data(dataset: Any) -> Any:
    """Return the `EpochBatches` of this data set, not of its inputs; `None` for other data sets."""
    return getattr(dataset, _NAME, None)


def walk_inputs(dataset: Any) -> Iterator[Any]:
    """Yield a data set and all its inputs, as far as TensorFlow knows them."""
    yield dataset
    if isinstance(dataset, tf.data.Dataset):
        for source in dataset._inputs():
            yield from walk_inputs(source)


def dataset_kind(dataset: Any) -> str:
    """Return the kind of a data set, such as `"Map"`."""
    return re.sub(r"Dataset(V\d)?$", "", type(dataset).__name__.removeprefix("_"))


_thread = threading.local()


class Fit:
    """A running `model.fit`.

    Attributes:
        data: The data of this fit alone, if `fit` was called with a data set of `EpochBatches`.
        iterator: Keras's `EpochIterator` over the training data.
        epoch: The epoch that is trained, or was trained last.
        start: Epoch and batch to begin at, if `start_fit_at` has set them; `None` after the start.
        data_ends: Epochs whose data ended before Keras expected it, with the batches that Keras
            had counted in the iterator.
        counted: `EpochBatches` that count their epochs, because an iterator covers several epochs.
        observers: The callbacks that are called at the end of the fit, also after an error.
        resumed_logs: Logs of a resumed epoch without a step left; ignored if the epoch has a step.
    """

    def __init__(self, model: keras.Model, initial_epoch: int) -> None:
        self.model, self.initial_epoch = model, initial_epoch
        self.data: Any = None
        self.iterator: Any = None
        self.epoch = initial_epoch
        self.start: tuple[int, int] | None = None
        self.data_ends: dict[int, int] = {}
        self.counted: list[Any] = []
        self.observers: list[Any] = []
        self.resumed_logs: Any = None
        self._held: list[Any] = []
        self._has_begun = False

    def use_data(self, data: Any) -> Any:
        """Return a data set for this fit alone."""
        self.data = data.for_fit()
        self.data.begin(self.initial_epoch)
        self._held.append(data)
        return self.data.dataset

    def begin_epoch(self, epoch: int) -> None:
        """Pass the epoch that is about to be trained to the data."""
        self.epoch = epoch
        if not self._has_begun:
            self._find_data()
        if self.data is not None:
            self.data.begin(epoch)
        for data in self._held:
            data.number.hold(epoch)
        if not self._has_begun:
            self.count_from(epoch)
        self._has_begun = True

    def count_from(self, epoch: int) -> None:
        """Let data that count their epochs return this epoch next."""
        for data in self.counted:
            data.number.count_from(epoch)

    def _find_data(self) -> None:
        """Find the `EpochBatches` among the training data and their inputs."""
        parts = list(walk_inputs(undivided_dataset(self.iterator)))
        found = [data for part in parts if (data := get_fit_data(part)) is not None]
        new = [data for data in found if data not in self._held]
        is_repeated = any("Repeat" in type(part).__name__ for part in parts)
        if is_repeated or self.iterator.steps_per_epoch:
            # An iterator covers several epochs, and begins them ahead of time.
            self.counted += new
        else:
            self._held += new

    def end(self) -> None:
        """Release the data, and call the observers."""
        if self.start is not None:  # no epoch was left to train
            self.model._initial_epoch = None
        if self.data is not None:
            self.data.end()
        for data in self._held:
            data.number.release()
        for observer in self.observers:
            observer.fit_ended()


@contextmanager
def register_fit(model: keras.Model, initial_epoch: int) -> Iterator[Fit]:
    """Register a fit of this thread inside the `with` block."""
    fit = Fit(model, initial_epoch)
    _fits().append(fit)
    try:
        yield fit
    finally:
        _fits().remove(fit)
        fit.end()


def innermost_fit() -> Fit | None:
    """Return the innermost fit of this thread; `None` outside any fit."""
    return _fits()[-1] if _fits() else None


def running_fit(model: keras.Model) -> Fit | None:
    """Return the innermost fit of a model in this thread; `None` outside any fit of the model."""
    return next((fit for fit in reversed(_fits()) if fit.model is model), None)


def undivided_dataset(iterator: Any) -> Any:
    """Return the data set of Keras's `EpochIterator`, before it is divided over replicas."""
    dataset = iterator._distributed_dataset
    return getattr(dataset, "_original_dataset", dataset)


def _fits() -> list[Fit]:
    fits: list[Fit] = vars(_thread).setdefault("fits", [])
    return fits


def count_rows(adapter: Any) -> int | None:
    """Return the number of rows of the arrays of Keras's adapter; `None` if unknown."""
    batch, batches = adapter.batch_size, adapter.num_batches
    if not batch or not batches:
        return None
    return int((batches - 1) * batch + (adapter.partial_batch_size or batch))


def find_global_batch(iterator: Any, data_batch: Any) -> int | None:
    """Return the number of samples per full batch; `None` if unknown."""
    if iterator is None:
        return int(keras.tree.flatten(data_batch)[0].shape[0])
    if isinstance(iterator.data_adapter, ArrayDataAdapter):
        return int(iterator.data_adapter.batch_size)
    peeked = getattr(iterator.data_adapter, "_first_batches", None)  # of a generator
    if peeked:
        return int(keras.tree.flatten(peeked[0])[0].shape[0])
    dataset = getattr(iterator.data_adapter, "_dataset", None)
    return find_batch_size(dataset) if isinstance(dataset, tf.data.Dataset) else None


def find_batch_size(dataset: tf.data.Dataset) -> int | None:
    """Return the batch size given to `tf.data.Dataset.batch`; `None` if it is unknown.

    The `element_spec` has the batch size only with `drop_remainder=True`.
    """
    data = get_fit_data(dataset)
    if data is not None:
        return int(data.batch_size)
    if hasattr(dataset, "_batch_size"):
        return int(dataset._batch_size)
    kind = dataset_kind(dataset)
    if kind not in _KEEP_BATCHES:
        return None
    # A dataset of scalars that is zipped with the batches, such as seeds, has no batch size.
    sources = [
        source for source in dataset._inputs() if kind != "Zip" or not _has_scalars_only(source)
    ]
    sizes = {find_batch_size(source) for source in sources}
    return sizes.pop() if len(sizes) == 1 else None


def count_samples(dataset: tf.data.Dataset) -> int | None:
    """Return the number of samples in all batches of a dataset; `None` if it is unknown."""
    if hasattr(dataset, "_batch_size"):
        size, (rows,) = int(dataset._batch_size), dataset._inputs()
        samples = int(rows.cardinality())
        if samples < 0:
            return None
        return samples // size * size if bool(dataset._drop_remainder) else samples
    kind = dataset_kind(dataset)
    return count_samples(dataset._inputs()[0]) if kind in _KEEP_SAMPLES else None


def _has_scalars_only(dataset: tf.data.Dataset) -> bool:
    shapes = (getattr(leaf, "shape", None) for leaf in keras.tree.flatten(dataset.element_spec))
    return all(shape is not None and shape.rank == 0 for shape in shapes)


_KEEP_BATCHES = (
    *("AssertCardinality", "Cache", "Map", "Options", "ParallelMap", "Prefetch"),
    *("Repeat", "Shuffle", "Skip", "Take", "Zip"),
)

_KEEP_SAMPLES = ("Cache", "Map", "Options", "ParallelMap", "Prefetch", "Shuffle")


def replica_batch_spec(iterator: Any, *, any_batch_size: bool) -> Any:
    """Return the shapes and types of a replica's batch; `None` if they are unknown.

    A model that was built for the global batch may reject the batch size of a replica. With
    `any_batch_size`, the batch size in the result is unknown.
    """

    def part(leaf: Any) -> Any:
        spec = getattr(leaf, "_value_specs", [leaf])[0]
        if any_batch_size and isinstance(spec, tf.TensorSpec) and spec.shape.rank:
            return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
        return spec

    spec = keras.tree.map_structure(part, iterator._distributed_dataset.element_spec)
    known = all(
        isinstance(leaf, tf.TensorSpec | tf.SparseTensorSpec)
        and leaf.shape.rank is not None
        and leaf.shape[1:].is_fully_defined()
        for leaf in keras.tree.flatten(spec)
    )
    return spec if known else None
