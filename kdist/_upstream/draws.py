"""Random draws by the sample's place in the global batch, the same on any number of replicas.

TensorFlow's stateless generators fill a tensor value by value from a counter. A replica that begins
to count where its rows begin draws, bit for bit, the rows that one device would have drawn.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.tensor_util import constant_value_as_shape

from .active_batch import ActiveBatch, active_batch
from .internals import is_compiled_by_xla
from .row_blocks import Block, row_blocks

# Keeps the seeds of replicas apart (2^32 divided by the golden ratio: multiples spread evenly).
_SEED_STRIDE = 0x9E3779B9

_thread = threading.local()


@contextlib.contextmanager
def drawing_for(tensor: Any) -> Iterator[None]:
    """Inside, draws are for this tensor's values, so what it was made from says where they are."""
    _thread.source = tensor
    try:
        yield
    finally:
        _thread.source = None


@contextlib.contextmanager
def drawing_for_all() -> Iterator[None]:
    """Inside, draws are for the rows of all replicas."""
    _thread.has_whole = True
    try:
        yield
    finally:
        _thread.has_whole = False


def blocks_to_draw(shape: Any) -> list[Block] | None:
    """The rows of the global batch that a draw of this shape is for.

    `None` where it is no draw for rows, and so the same on every replica.
    """
    batch = _placed()
    if batch is None or getattr(_thread, "has_whole", False):
        return None
    return row_blocks(batch, shape, getattr(_thread, "source", None))


def _placed() -> ActiveBatch | None:
    batch = active_batch()
    return batch if batch is not None and batch.draws_by_place else None


def _replica() -> Any:
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def replica_seed(seed: Any) -> Any:
    """The same seed on every replica where draws follow the place, else another on each."""
    if _placed():
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
    counts_a_value: int | None = None,
    under_xla: bool = False,
    **options: Any,
) -> Any:
    """Draw each block from the counter where it begins.

    Args:
        original: TensorFlow's operation.
        shape: Of this replica's values, a 1-D tensor.
        key: As TensorFlow has it, and so is `counter`.
        counter: Where the stream begins.
        dtype: Of the values.
        counts_a_value: By how much the counter grows for a value; `None` where a count gives as
            many as fit into 128 bits, 32 of them at least each.
        under_xla: Whether XLA fills a tensor in this order too.
        **options: For `original`.
    """
    draw = functools.partial(original, **options)
    blocks = blocks_to_draw(shape)
    if blocks is None:
        return draw(shape, key=_key(key, apart=_has_unknown_rows(shape)), counter=counter)
    if is_compiled_by_xla() and not under_xla:
        return draw(shape, key=_key(key, apart=True), counter=counter)
    group = 16 // max(tf.as_dtype(dtype).size, 4)
    counts_a_group = counts_a_value * group if counts_a_value else 1
    inner = _values_a_row(shape)
    in_groups = isinstance(inner, int) and inner % group == 0

    def rows(block: Block) -> Any:
        first = block.first * inner
        skipped = tf.cast(first // group * counts_a_group, counter.dtype)
        from_there = counter + tf.stack([skipped, tf.zeros_like(skipped)])
        size = tf.cast(block.count, "int64") * inner
        # More than is needed, as XLA takes no size that depends on the place.
        drawn = tf.reshape(size if in_groups else size + group - 1, [1])
        values = draw(drawn, key=key, counter=from_there)
        if not in_groups:
            values = tf.slice(
                values, tf.reshape(tf.cast(first % group, "int64"), [1]), tf.reshape(size, [1])
            )
        return tf.reshape(values, _shape_of(block, shape))

    return _joined(blocks, rows)


def _key(key: Any, *, apart: bool) -> Any:
    """TensorFlow's key, or another one on every replica."""
    return key + tf.cast(_replica(), key.dtype) * _SEED_STRIDE if apart else key


def _has_unknown_rows(shape: Any) -> bool:
    """Whether a draw seems to be for samples, though not for rows of the batch's first axis."""
    known = constant_value_as_shape(shape)
    whole = getattr(_thread, "has_whole", False)
    # One row is broadcast to all samples.
    unknown = bool(known.rank) and known[0] != 1 and not known.is_fully_defined()
    return _placed() is not None and unknown and not whole


def draw_of_whole(
    original: Callable[..., Any], shape: Any, parameters: dict[str, Any], **options: Any
) -> Any:
    """Draw every block of the global batch, and take this replica's rows.

    What other replicas have for parameters is not known here, nor does it matter: every value is
    drawn from numbers of its own.
    """
    blocks = blocks_to_draw(shape)
    if blocks is None or is_compiled_by_xla():
        return original(shape, **parameters, **options)

    known = constant_value_as_shape(shape)

    def whole(parameter: Any) -> Any:
        by_row = len(parameter.shape) == known.rank and parameter.shape[0] == known[0]
        return _padded(parameter, blocks) if by_row else parameter

    totals = [tf.cast(block.total, shape.dtype) for block in blocks]
    drawn = original(
        tf.concat([[tf.add_n(totals)], shape[1:]], 0),
        **{name: whole(value) for name, value in parameters.items()},
        **options,
    )
    return _joined(blocks, lambda block: drawn[block.first :][: block.count])


def _padded(parameter: Any, blocks: list[Block]) -> Any:
    """The rows at their places in the whole, and ones elsewhere."""
    parts = []
    for block, rows in zip(blocks, tf.split(parameter, [b.count for b in blocks]), strict=True):
        inside = block.first - block.before
        after = block.total - inside - tf.cast(block.count, "int64")
        around = [[inside, after]] + [[0, 0]] * (len(parameter.shape) - 1)
        parts.append(tf.pad(rows, around, constant_values=1))
    return tf.concat(parts, 0)


def _joined(blocks: list[Block], of_block: Callable[[Block], Any]) -> Any:
    parts = [of_block(block) for block in blocks]
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _shape_of(block: Block, shape: Any) -> Any:
    return tf.concat([[tf.cast(block.count, shape.dtype)], shape[1:]], 0)


def _values_a_row(shape: Any) -> Any:
    sizes = constant_value_as_shape(shape)[1:]
    return sizes.num_elements() or tf.cast(tf.reduce_prod(shape[1:]), "int64")


def compute_on_whole(compute: Callable[[Any], Any], data: Any) -> Any:
    """Compute on the rows of all replicas, and take this replica's."""
    batch = active_batch()
    blocks = blocks_to_draw(tf.shape(keras.tree.flatten(data)[0]))
    if batch is None or not blocks:
        return compute(data)
    gathered = keras.tree.map_structure(batch.all_gather, data)
    with drawing_for_all():
        computed = compute(gathered)
    (block,) = blocks
    return keras.tree.map_structure(lambda leaf: leaf[block.first :][: block.count], computed)
