"""How the iterators of a `tf.data.Dataset` differ, read from its operations."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from .fit_data import fit_data_of, walk

# Each of their iterators makes one of every input as it begins, and keeps nothing for the next.
_PLAIN = frozenset(
    (
        *(
            "AssertCardinality",
            "Batch",
            "DenseToRagged",
            "DenseToSparseBatch",
            "DirectedInterleave",
        ),
        *("Filter", "FixedLengthRecord", "FlatMap", "GroupByWindow", "IgnoreErrors", "Interleave"),
        *("Map", "Options", "PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap"),
        *("Prefetch", "Random", "Range", "Rebatch", "Restructured", "Scan", "Shard", "Shuffle"),
        *("Skip", "SparseTensorSlice", "Take", "TakeWhile", "Tensor", "TensorSlice", "TextLine"),
        *("TFRecord", "Unbatch", "Unique", "Window", "Zip"),
    )
)
# They make the iterators of an input while the data are read: several, or one for all time.
_LATER = frozenset(("Cache", "Concatenate", "Repeat"))
_COUNTED = frozenset(("Random", "Shuffle"))
_PYTHON = frozenset(("EagerPyFunc", "GeneratorDataset", "PyFunc", "PyFuncStateless"))
_READ = frozenset(
    ("LookupTableFindV2", "Placeholder", "ReadVariableOp", "ResourceGather", "ResourceGatherNd")
)


@dataclass(frozen=True)
class DatasetState:
    """How iterators of a data set differ.

    Attributes:
        is_counted: They may differ by how many were made before.
        must_be_read: They may differ by what was read before.
        changes: They may give something else in another epoch, for whatever reason.
    """

    is_counted: bool
    must_be_read: bool
    changes: bool


def dataset_state(dataset: Any) -> DatasetState:
    """Read from a data set's operations how its iterators differ."""
    if fit_data_of(dataset) is not None:
        return DatasetState(is_counted=False, must_be_read=False, changes=True)
    if not isinstance(dataset, tf.data.Dataset):
        return DatasetState(is_counted=True, must_be_read=True, changes=True)
    inputs = [dataset_state(one) for one in dataset._inputs()]
    kind = _kind(dataset)
    change = any(one.changes for one in inputs)
    is_counted = kind in _COUNTED or any(one.is_counted for one in inputs)
    must_be_read = (
        any(one.must_be_read for one in inputs)
        or kind not in _PLAIN | _LATER
        or (kind in _LATER and change)
        or any(_writes(node) for node in _nodes(dataset))
    )
    return DatasetState(is_counted, must_be_read, change or is_counted or must_be_read)


def inexact_part(dataset: Any) -> str | None:
    """What in a data set makes its batches others in every run: the rest of "as …", or `None`."""
    parts = [one for one in walk(dataset) if isinstance(one, tf.data.Dataset)]
    nodes = [(part, node) for part in parts for node in _nodes(part)]
    if any(_kind(part) in _COUNTED and _is_zero(part._seed, part._seed2) for part in parts) or any(
        _is_unseeded(part, node) for part, node in nodes
    ):
        return "it draws random numbers without a seed"
    if _options(dataset).deterministic is False or any(
        getattr(part, "_deterministic", None) == "false" for part in parts
    ):
        return "it does not keep an order (deterministic=False)"
    if any(_kind(part) == "ParallelMap" and _draws(node) for part, node in nodes):
        return "it draws random numbers in a parallel map"
    return None


def has_unknown_parts(dataset: Any) -> bool:
    """Whether a data set has parts that do not say what they depend on, such as Python code."""
    return any(
        not isinstance(part, tf.data.Dataset)
        or _kind(part) not in _PLAIN | _LATER
        or any(node.op in _PYTHON for node in _nodes(part))
        for part in walk(dataset)
        if fit_data_of(part) is None
    )


def _kind(dataset: Any) -> str:
    """Such as `"Map"`."""
    return re.sub(r"Dataset(V\d)?$", "", type(dataset).__name__.removeprefix("_"))


def _options(dataset: Any) -> tf.data.Options:
    return dataset.options() if isinstance(dataset, tf.data.Dataset) else tf.data.Options()


def _nodes(dataset: Any) -> Iterator[Any]:
    """The operations of a data set's own functions, and of those that they call."""
    if fit_data_of(dataset) is not None:
        return
    for wrapper in dataset._functions():
        graph = wrapper.function.graph.as_graph_def()
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def


def _writes(node: Any) -> bool:
    """Whether an operation may leave something behind that another iterator finds."""
    definition = op_def_registry.get(node.op)
    is_stateful = definition is None or definition.is_stateful
    is_of_dataset = re.search(r"Dataset(V\d)?$|SeedGenerator$", node.op)
    return is_stateful and not is_of_dataset and node.op not in _READ and "seed2" not in node.attr


def _draws(node: Any) -> bool:
    return "seed2" in node.attr or node.op == "RngReadAndSkip"


def _is_unseeded(dataset: Any, node: Any) -> bool:
    """Whether an operation of a function draws by a seed of its own making."""
    if "seed2" in node.attr:
        return _is_zero(node.attr["seed"].i, node.attr["seed2"].i)
    if not node.op.startswith(("ShuffleDataset", "RandomDataset")):
        return False
    values = {one.name: one.attr["value"].tensor for one in _nodes(dataset) if one.op == "Const"}
    seeds = [values.get(name.partition(":")[0]) for name in node.input if "seed" in name]
    known = [tf.make_ndarray(seed) for seed in seeds if seed is not None]
    return len(known) == 2 and _is_zero(*known)


def _is_zero(seed: Any, seed2: Any) -> bool:
    return int(seed) == int(seed2) == 0
