"""`DataSource`: the data of a continued fit; a subclass for each kind of data skips the batches.

`find_data_source`, at the end, finds the kind. `dataset_state` and `inexact_part` examine a
`tf.data.Dataset`.
"""

import copy
import itertools
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.utils.rng_utils import get_random_seed
from tensorflow.python.framework import op_def_registry

from .running_fits import (
    Fit,
    count_rows,
    dataset_kind,
    get_fit_data,
    running_fit,
    undivided_dataset,
    walk_inputs,
)

# Kinds of data sets whose iterators open an iterator of every input when they begin, and keep no
# state for the next iterator.
_OPENS_INPUTS_AT_START = frozenset(
    (
        *("AssertCardinality", "Batch", "DenseToRagged", "DenseToSparseBatch"),
        *("DirectedInterleave",),
        *("Filter", "FixedLengthRecord", "FlatMap", "GroupByWindow", "IgnoreErrors", "Interleave"),
        *("Map", "Options", "PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap"),
        *("Prefetch", "Random", "Range", "Rebatch", "Restructured", "Scan", "Shard", "Shuffle"),
        *("Skip", "SparseTensorSlice", "Take", "TakeWhile", "Tensor", "TensorSlice", "TextLine"),
        *("TFRecord", "Unbatch", "Unique", "Window", "Zip"),
    )
)
# Kinds of data sets whose iterators open the iterators of an input while the data are read: several
# iterators, or a single iterator forever.
_OPENS_INPUTS_LATE = frozenset(("Cache", "Concatenate", "Repeat"))
_ORDER_BY_ITERATOR = frozenset(("Random", "Shuffle"))
_PYTHON_OPERATIONS = frozenset(("EagerPyFunc", "GeneratorDataset", "PyFunc", "PyFuncStateless"))
_READS_STATE = frozenset(
    ("LookupTableFindV2", "Placeholder", "ReadVariableOp", "ResourceGather", "ResourceGatherNd")
)


@dataclass(frozen=True)
class DatasetState:
    """The dependence of a data set's iterators on earlier iterators.

    Attributes:
        is_counted: Iterators may depend on the number of earlier iterators.
        must_be_read: Iterators may depend on the elements that were read before.
        changes: Iterators may give different elements in another epoch, for any reason.
    """

    is_counted: bool
    must_be_read: bool
    changes: bool


def dataset_state(dataset: Any) -> DatasetState:
    """Return how a data set's iterators depend on earlier iterators."""
    if get_fit_data(dataset) is not None:
        return DatasetState(is_counted=False, must_be_read=False, changes=True)
    if not isinstance(dataset, tf.data.Dataset):
        return DatasetState(is_counted=True, must_be_read=True, changes=True)
    inputs = [dataset_state(source) for source in dataset._inputs()]
    kind = dataset_kind(dataset)
    change = any(state.changes for state in inputs)
    is_counted = kind in _ORDER_BY_ITERATOR or any(state.is_counted for state in inputs)
    must_be_read = (
        any(state.must_be_read for state in inputs)
        or kind not in _OPENS_INPUTS_AT_START | _OPENS_INPUTS_LATE
        or (kind in _OPENS_INPUTS_LATE and change)
        or any(_writes_state(node) for node in _list_nodes(dataset))
    )
    return DatasetState(is_counted, must_be_read, change or is_counted or must_be_read)


def inexact_part(dataset: Any) -> str | None:
    """Return why a data set's batches differ between runs, as a clause; `None` if they do not."""
    parts = [part for part in walk_inputs(dataset) if isinstance(part, tf.data.Dataset)]
    nodes = [(part, node) for part in parts for node in _list_nodes(part)]
    if any(
        dataset_kind(part) in _ORDER_BY_ITERATOR and _is_zero(part._seed, part._seed2)
        for part in parts
    ) or any(_is_unseeded(part, node) for part, node in nodes):
        return "it draws random numbers without a seed"
    if _read_options(dataset).deterministic is False or any(
        getattr(part, "_deterministic", None) == "false" for part in parts
    ):
        return "it does not keep an order (deterministic=False)"
    if any(
        dataset_kind(part) == "ParallelMap"
        and ("seed2" in node.attr or node.op == "RngReadAndSkip")
        for part, node in nodes
    ):
        return "it draws random numbers in a parallel map"
    return None


def has_unknown_parts(dataset: Any) -> bool:
    """Whether a data set has parts with unknown dependencies, such as Python code."""
    return any(
        not isinstance(part, tf.data.Dataset)
        or dataset_kind(part) not in _OPENS_INPUTS_AT_START | _OPENS_INPUTS_LATE
        or any(node.op in _PYTHON_OPERATIONS for node in _list_nodes(part))
        for part in walk_inputs(dataset)
        if get_fit_data(part) is None
    )


def _read_options(dataset: Any) -> tf.data.Options:
    return dataset.options() if isinstance(dataset, tf.data.Dataset) else tf.data.Options()


def _list_nodes(dataset: Any) -> Iterator[Any]:
    """Yield the operations of a data set's own functions, and of the functions that they call."""
    if get_fit_data(dataset) is not None:
        return
    for wrapper in dataset._functions():
        graph = wrapper.function.graph.as_graph_def()
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def


def _writes_state(node: Any) -> bool:
    """Whether an operation may leave a state behind that another iterator reads."""
    definition = op_def_registry.get(node.op)
    is_stateful = definition is None or definition.is_stateful
    is_of_dataset = re.search(r"Dataset(V\d)?$|SeedGenerator$", node.op)
    return (
        is_stateful
        and not is_of_dataset
        and node.op not in _READS_STATE
        and "seed2" not in node.attr
    )


def _is_unseeded(dataset: Any, node: Any) -> bool:
    """Whether an operation of a function draws random numbers without a given seed."""
    if "seed2" in node.attr:
        return _is_zero(node.attr["seed"].i, node.attr["seed2"].i)
    if not node.op.startswith(("ShuffleDataset", "RandomDataset")):
        return False
    values = {
        constant.name: constant.attr["value"].tensor
        for constant in _list_nodes(dataset)
        if constant.op == "Const"
    }
    seeds = [values.get(name.partition(":")[0]) for name in node.input if "seed" in name]
    known = [tf.make_ndarray(seed) for seed in seeds if seed is not None]
    return len(known) == 2 and _is_zero(*known)


def _is_zero(seed: Any, seed2: Any) -> bool:
    return int(seed) == int(seed2) == 0


@dataclass
class IteratorUse:
    """An iterator over the training data.

    Attributes:
        epoch: The epoch that creates the iterator, counted from the beginning of the fit.
        read_from: The first epoch that reads the iterator; `None` if no epoch reads it.
        batches: Number of batches read; `None` for all batches.
    """

    epoch: int
    read_from: int | None = None
    batches: int | None = 0


def make_spare_iterator(epoch_iterator: Any) -> None:
    """Create the unused iterator that Keras creates at the end of an epoch.

    The next epoch creates another iterator, but the spare iterator changes the order of data that
    are shuffled again for each iterator. The spare iterator is not divided over the replicas, as no
    epoch reads it.
    """
    if isinstance(epoch_iterator.data_adapter, TFDatasetAdapter):
        iter(epoch_iterator.data_adapter.get_tf_dataset())


class IteratorHistory:
    """The iterators of a fit's first epochs.

    Attributes:
        iterators: All iterators, in order.
        current: The iterator that the next epoch continues to read; `None` if that epoch creates a
            new iterator.
        num_batches: Keras's number of batches after these epochs. If the data set does not know its
            length, Keras takes the number from the first epoch in which the data end.
    """

    def __init__(
        self,
        epochs: int,
        *,
        num_batches: int | None,
        steps_per_epoch: int | None,
        steps_per_execution: int,
        ends: Mapping[int, int],
    ) -> None:
        self.iterators: list[IteratorUse] = []
        self.current: IteratorUse | None = None
        self.num_batches, self._steps_per_epoch = num_batches, steps_per_epoch
        self._steps_per_execution = steps_per_execution
        self._steps_seen = 0
        for epoch in range(epochs):
            self._read_epoch(epoch, ends.get(epoch))
        if steps_per_epoch is None:
            self.current = None

    def _read_epoch(self, epoch: int, end: int | None) -> None:
        """Read an epoch; `end`: the batches that Keras had counted when the data ended."""
        use = self.current
        if use is None or self._steps_per_epoch is None:
            use = self._make_iterator(epoch)
        executions = self._count_executions()
        if executions != 0 and use.read_from is None:
            use.read_from = epoch
        if executions is None or end is not None:
            use.batches = self.current = None
            self.num_batches = self.num_batches or end
            return
        read = executions * self._steps_per_execution
        use.batches = (use.batches or 0) + read
        self._steps_seen += read
        # Keras creates an iterator here even if the next epoch will create another.
        if self.num_batches and self._steps_seen >= self.num_batches:
            self._make_iterator(epoch)

    def _count_executions(self) -> int | None:
        """Return the executions of an epoch; `None` if they are unknown."""
        steps = self._steps_per_epoch or self.num_batches
        if not steps:
            return None
        executions = -(-steps // self._steps_per_execution)
        if self.num_batches:
            left = -(-(self.num_batches - self._steps_seen) // self._steps_per_execution)
            executions = min(executions, left)
        return executions

    def _make_iterator(self, epoch: int) -> IteratorUse:
        self.current = use = IteratorUse(epoch)
        self.iterators.append(use)
        self._steps_seen = 0
        return use


class DataSource:
    """Training data that are read from their beginning; unwanted batches are dropped.

    `inexact` says why a fit that begins within these data may differ; `None` if it does not.
    """

    def __init__(self, fit: Fit, *, inexact: str | None = None) -> None:
        self.fit, self.inexact = fit, inexact
        self.epoch_iterator = fit.iterator
        self.adapter = fit.iterator.data_adapter

    def replay(self, history: IteratorHistory, epochs: int) -> None:
        """Bring the data to their state after the earlier epochs."""
        self.fit.count_from(self.fit.initial_epoch)
        for epoch in range(epochs):
            self.fit.begin_epoch(self.fit.initial_epoch + epoch)
            self.adapter.on_epoch_begin()
            for use in history.iterators:
                if use.epoch != epoch or use is history.current:
                    continue
                if use.batches == 0:
                    make_spare_iterator(self.epoch_iterator)
                else:
                    _drop_batches(iter(self.epoch_iterator._get_iterator()), use.batches)
            self.adapter.on_epoch_end()
        self.fit.begin_epoch(self.fit.initial_epoch + epochs)

    def begin_epoch(self, batch: int) -> None:
        """Called before the epoch begins, with the first batch of its iterator."""

    def iterator_at(self, batch: int) -> Any:
        """Return an iterator whose next batch has the number `batch`."""
        iterator = iter(self.epoch_iterator._get_iterator())
        _drop_batches(iterator, batch)
        return iterator

    def end_epoch(self) -> None:
        """Called after the epoch has ended."""

    def iterate(self, dataset: tf.data.Dataset) -> Any:
        """Return an iterator of a data set, divided like the fit's data."""
        return iter(
            self.epoch_iterator._distribute_strategy.experimental_distribute_dataset(dataset)
        )


class EpochSource(DataSource):
    """`EpochBatches`, which compute any batch of any epoch."""

    def replay(self, history: IteratorHistory, epochs: int) -> None:
        """Do nothing, as no batch depends on earlier epochs."""

    def iterator_at(self, batch: int) -> Any:
        """Return an iterator that begins at a batch of the epoch."""
        if self.fit.data is None:
            raise RuntimeError("the fit has no EpochBatches (an error in kdist)")
        return self.iterate(self.fit.data.starting_at(batch))


class DatasetSource(DataSource):
    """A `tf.data.Dataset`, also the data set of arrays."""

    def __init__(self, fit: Fit, *, inexact: str | None, state: DatasetState) -> None:
        super().__init__(fit, inexact=inexact)
        self._state = state

    def replay(self, history: IteratorHistory, epochs: int) -> None:
        """Create the iterators of the earlier epochs, and read them if the data depend on it."""
        if self._state.must_be_read:
            super().replay(history, epochs)
            return
        dataset = undivided_dataset(self.epoch_iterator)
        before = [use for use in history.iterators if use is not history.current]
        for _ in before if self._state.is_counted else ():
            iter(dataset)
        # Data that count their epochs count only the iterators that are read.
        self.fit.count_from(
            self.fit.initial_epoch + sum(use.read_from is not None for use in before)
        )

    def iterator_at(self, batch: int) -> Any:
        """Return an iterator that begins at a batch; `tf.data` skips the earlier batches."""
        if not batch:
            return super().iterator_at(0)
        return self.iterate(undivided_dataset(self.epoch_iterator).skip(batch))


def _drop_batches(iterator: Any, batches: int | None) -> None:
    """Read and drop `batches` batches, or all batches if `batches` is `None`."""
    read = 0
    while batches is None or read < batches:
        try:
            next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return
        read += 1


class PyDatasetSource(DataSource):
    """A `keras.utils.PyDataset`; unwanted batches are not computed."""

    def __init__(self, fit: Fit) -> None:
        whole, is_shuffled = fit.iterator.data_adapter.py_dataset, fit.iterator.data_adapter.shuffle
        self._whole, self._is_shuffled = whole, is_shuffled and whole.num_batches is not None
        is_unseeded = self._is_shuffled and get_random_seed() is None
        super().__init__(fit, inexact=_UNSEEDED if is_unseeded else _IF_REPEATED)
        self._current_order: list[int] | None = None

    def replay(self, history: IteratorHistory, epochs: int) -> None:
        """Call the hooks of the earlier epochs, and shuffle as these epochs did."""
        for epoch in range(epochs):
            self._whole.on_epoch_begin()
            for use in history.iterators:
                if use.read_from == epoch:
                    order = self._draw_order()
                    self._current_order = order if use is history.current else None
            self._whole.on_epoch_end()

    def begin_epoch(self, batch: int) -> None:
        """Let the data set's workers compute only the wanted batches."""
        enqueuer = self.adapter.enqueuer
        if enqueuer is None:
            return
        if self._whole.num_batches is None:
            enqueuer.indices = itertools.count(batch)
        else:
            enqueuer.py_dataset, enqueuer.shuffle = self._part_from(batch), False

    def iterator_at(self, batch: int) -> Any:
        """Return an iterator that begins at a batch."""
        adapter, enqueuer = copy.copy(self.adapter), self.adapter.enqueuer
        if enqueuer is None:
            adapter.py_dataset, adapter.shuffle = self._part_from(batch), False
        else:
            adapter.py_dataset = enqueuer.py_dataset
        return self.iterate(adapter.get_tf_dataset())

    def end_epoch(self) -> None:
        """Let the data set's workers compute all batches again."""
        enqueuer = self.adapter.enqueuer
        if enqueuer is not None:
            enqueuer.py_dataset, enqueuer.shuffle = self._whole, self.adapter.shuffle

    def _part_from(self, batch: int) -> "_RemainingBatches":
        return _RemainingBatches(self._whole, self._current_order or self._draw_order(), batch)

    def _draw_order(self) -> list[int] | None:
        """Draw the order of an epoch's batches as Keras does; `None` for infinite data."""
        if self._whole.num_batches is None:
            return None
        order = list(range(self._whole.num_batches))
        if self._is_shuffled:
            random.shuffle(order)
        return order


class _RemainingBatches(keras.utils.PyDataset):
    """The batches of a `PyDataset` in a given order, from a position on."""

    def __init__(self, whole: keras.utils.PyDataset, order: list[int] | None, first: int) -> None:
        super().__init__(whole.workers, whole.use_multiprocessing, whole.max_queue_size)
        self._whole, self._first = whole, first
        self._left = None if order is None else order[first:]

    @property
    def num_batches(self) -> int | None:
        """Number of batches from the position on; `None` for infinite data."""
        return None if self._left is None else len(self._left)

    def __getitem__(self, index: int) -> Any:
        """Return the batch at an index, counted from the position."""
        return self._whole[self._first + index if self._left is None else self._left[index]]


_UNSEEDED = (
    "The data are shuffled without a seed, so their order differs from the interrupted training:"
    " call keras.utils.set_random_seed before fit, or pass shuffle=False"
)
_IF_REPEATED = "The resumed training is exact only if the data give the same batches in every run"


def find_data_source(fit: Fit) -> DataSource:
    """Return the `DataSource` of a fit's training data, by the kind of data."""
    adapter, dataset = fit.iterator.data_adapter, undivided_dataset(fit.iterator)
    if fit.data is not None and dataset is fit.data.dataset:
        return EpochSource(fit)
    if isinstance(adapter, PyDatasetAdapter):
        return PyDatasetSource(fit)
    if isinstance(adapter, GeneratorDataAdapter) or not isinstance(dataset, tf.data.Dataset):
        return DataSource(fit, inexact=_IF_REPEATED)
    state = dataset_state(dataset)
    if isinstance(adapter, ArrayDataAdapter):
        inexact = _UNSEEDED if inexact_part(dataset) else None
    else:
        inexact = _describe_inexactness(dataset)
    return DatasetSource(fit, inexact=inexact, state=state)


def array_sizes(model: keras.Model) -> dict[str, int] | None:
    """Return samples and batch size of the arrays of a model's fit; `None` without arrays."""
    fit = running_fit(model)
    adapter = None if fit is None or fit.iterator is None else fit.iterator.data_adapter
    if not isinstance(adapter, ArrayDataAdapter):
        return None
    return {"batch_size": int(adapter.batch_size), "samples": count_rows(adapter) or 0}


def _describe_inexactness(dataset: tf.data.Dataset) -> str | None:
    part = inexact_part(dataset)
    if part is not None:
        return (
            "The batches of this tf.data.Dataset differ from the interrupted training's, because"
            f" {part}"
        )
    return _IF_REPEATED if has_unknown_parts(dataset) else None
