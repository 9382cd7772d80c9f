"""Random draws by the sample's place in the global batch: the same on any number of replicas.

TensorFlow's stateless generators fill a tensor value by value from a counter. If a replica starts
its counter where its rows begin, it draws the same bits for them as one device would.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value_as_shape

from .active_batch import active_batch
from .internals import is_compiled_by_xla
from .row_blocks import Block, row_blocks

# 2^32 divided by the golden ratio: its multiples spread evenly, so the replicas' seeds differ.
_SEED_STRIDE = 0x9E3779B9

_thread = threading.local()


@contextlib.contextmanager
def drawing_for(tensor: Any) -> Iterator[None]:
    """Inside the `with` block, random numbers are drawn for the values of `tensor`."""
    _thread.source = tensor
    try:
        yield
    finally:
        _thread.source = None


@contextlib.contextmanager
def drawing_for_all_replicas() -> Iterator[None]:
    """Inside the `with` block, random numbers are drawn for the rows of all replicas."""
    _thread.is_for_all_replicas = True
    try:
        yield
    finally:
        _thread.is_for_all_replicas = False


def blocks_to_draw(shape: Any) -> list[Block] | None:
    """Return the rows of the global batch that a draw of this shape is for.

    Returns `None` if it is not for rows of the batch: then it is the same on every replica.
    """
    batch = active_batch()
    if batch is None or getattr(_thread, "is_for_all_replicas", False):
        return None
    return row_blocks(batch, shape, getattr(_thread, "source", None))


def _replica() -> Any:
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def replica_seed(seed: Any) -> Any:
    """Return a different seed on each replica, unless draws follow the sample's place."""
    if active_batch():
        return seed
    replica = tf.cast(_replica(), "uint32")
    offset = tf.stack([replica * tf.constant(_SEED_STRIDE, "uint32"), tf.constant(0, "uint32")])
    return seed + tf.cast(offset, seed.dtype)


def draw_by_counter(
    original: Callable[..., Any],
    shape: Any,
    *,
    key: Any,
    counter: Any,
    dtype: Any,
    counts_per_value: int | None = None,
    under_xla: bool = False,
    **options: Any,
) -> Any:
    """Draw each block with the counter's value at its first row.

    Args:
        original: TensorFlow's operation.
        shape: Shape of this replica's values, a 1-D tensor.
        key: TensorFlow's key.
        counter: TensorFlow's counter at the first value of the global batch.
        dtype: The values' dtype.
        counts_per_value: Increments of the counter per value. `None` if one count gives as many
            values as fit into 128 bits, at 32 bits or more each.
        under_xla: Whether XLA fills a tensor in the same order.
        **options: Arguments of `original`.
    """
    draw = functools.partial(original, **options)
    blocks = blocks_to_draw(shape)
    if blocks is None:
        return draw(shape, key=_key(key, per_replica=_has_unknown_rows(shape)), counter=counter)
    if is_compiled_by_xla() and not under_xla:
        return draw(shape, key=_key(key, per_replica=True), counter=counter)
    group = 16 // max(tf.as_dtype(dtype).size, 4)
    counts_per_group = counts_per_value * group if counts_per_value else 1
    inner = _values_per_row(shape)
    is_aligned = isinstance(inner, int) and inner % group == 0

    def rows(block: Block) -> Any:
        first = block.first * inner
        skipped = tf.cast(first // group * counts_per_group, counter.dtype)
        start = counter + tf.stack([skipped, tf.zeros_like(skipped)])
        size = tf.cast(block.count, "int64") * inner
        # May be more than needed: under XLA the size cannot depend on the place.
        drawn = tf.reshape(size if is_aligned else size + group - 1, [1])
        values = draw(drawn, key=key, counter=start)
        if not is_aligned:
            values = tf.slice(
                values, tf.reshape(tf.cast(first % group, "int64"), [1]), tf.reshape(size, [1])
            )
        return tf.reshape(values, _shape_of(block, shape))

    return _marked(_concatenate(blocks, rows))


def _key(key: Any, *, per_replica: bool) -> Any:
    """Return TensorFlow's key, optionally a different one on each replica."""
    return key + tf.cast(_replica(), key.dtype) * _SEED_STRIDE if per_replica else key


def _has_unknown_rows(shape: Any) -> bool:
    """Whether a draw seems to be for samples, but not for the rows of the batch."""
    known = constant_value_as_shape(shape)
    for_all = getattr(_thread, "is_for_all_replicas", False)
    # A single row is broadcast to all samples.
    unknown = bool(known.rank) and known[0] != 1 and not known.is_fully_defined()
    return active_batch() is not None and unknown and not for_all


def draw_global_rows(
    original: Callable[..., Any], shape: Any, parameters: dict[str, Any], **options: Any
) -> Any:
    """Draw the rows of all replicas, and return those of this replica.

    The other replicas' parameters are unknown here, but do not matter: each value is drawn from its
    own random numbers.
    """
    blocks = blocks_to_draw(shape)
    if blocks is None or is_compiled_by_xla():
        return original(shape, **parameters, **options)

    known = constant_value_as_shape(shape)

    def global_rows(parameter: Any) -> Any:
        by_row = len(parameter.shape) == known.rank and parameter.shape[0] == known[0]
        return _pad(parameter, blocks) if by_row else parameter

    totals = [tf.cast(block.total, shape.dtype) for block in blocks]
    drawn = original(
        tf.concat([[tf.add_n(totals)], shape[1:]], 0),
        **{name: global_rows(value) for name, value in parameters.items()},
        **options,
    )
    return _marked(_concatenate(blocks, lambda block: drawn[block.first :][: block.count]))


def _pad(parameter: Any, blocks: list[Block]) -> Any:
    """Return the rows at their places in the global batch, and ones in all other rows."""
    parts = []
    for block, rows in zip(blocks, tf.split(parameter, [b.count for b in blocks]), strict=True):
        inside = block.first - block.before
        after = block.total - inside - tf.cast(block.count, "int64")
        padding = [[inside, after]] + [[0, 0]] * (len(parameter.shape) - 1)
        parts.append(tf.pad(rows, padding, constant_values=1))
    return tf.concat(parts, 0)


def _concatenate(blocks: list[Block], of_block: Callable[[Block], Any]) -> Any:
    parts = [of_block(block) for block in blocks]
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _marked(drawn: Any) -> Any:
    """Record that each row was drawn for a sample, which its operations do not show."""
    batch = active_batch()
    return drawn if batch is None else batch.mark(drawn, "ROWS")


def _shape_of(block: Block, shape: Any) -> Any:
    return tf.concat([[tf.cast(block.count, shape.dtype)], shape[1:]], 0)


def _values_per_row(shape: Any) -> Any:
    sizes = constant_value_as_shape(shape)[1:]
    return sizes.num_elements() or tf.cast(tf.reduce_prod(shape[1:]), "int64")


def compute_on_all_rows(compute: Callable[[Any], Any], data: Any) -> Any:
    """Compute on the rows of all replicas, and return those of this replica."""
    batch = active_batch()
    blocks = blocks_to_draw(tf.shape(keras.tree.flatten(data)[0]))
    if batch is None or not blocks:
        return compute(data)
    gathered = keras.tree.map_structure(batch.all_gather, data)
    with drawing_for_all_replicas():
        computed = compute(gathered)
    (block,) = blocks
    return keras.tree.map_structure(lambda leaf: leaf[block.first :][: block.count], computed)
