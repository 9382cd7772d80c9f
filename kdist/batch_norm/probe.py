"""Runs one batch through a model without changing it, and records its batch norms' inputs."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .. import _upstream
from ..errors import UserError
from ..layers.batch_norm_kernels import Kernels, broadcast_mask
from ..layers.measurements import mean_loss, stateless_pass
from .find import batch_norms, unsynchronized_batch_norms

_HINT = "pass one batch as fit() takes them, as in batch=(x[:128], y[:128])"


def checked_batch(batch: Any) -> Any:
    """Return a batch as `fit` takes it, with its leaves as arrays.

    Raises:
        UserError: If it is not `(x, y)` or `(x, y, sample_weight)` with equal numbers of samples.
    """
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        parts = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise UserError(
            f"batch is {type(batch).__name__}{parts}, but has to be a tuple (x, y) or"
            f" (x, y, sample_weight): {_HINT}."
        )
    arrays = keras.tree.map_structure(
        lambda leaf: None if leaf is None else np.asarray(leaf), tuple(batch)
    )
    shapes = [leaf.shape for leaf in keras.tree.flatten(arrays) if leaf is not None]
    samples = {shape[0] if shape else 0 for shape in shapes}
    if len(samples) != 1 or 0 in samples:
        raise UserError(
            f"batch has arrays of shapes {', '.join(map(str, shapes))}, but all have to have the "
            f"same number of samples, at least 1: {_HINT}."
        )
    return arrays


def check_model_accepts(model: keras.Model, batch: Any) -> None:
    """Raise `UserError` if a batch of such shapes cannot go through the model."""
    try:
        for training in (False, True):
            with stateless_pass(model):
                x, _, _ = keras.utils.unpack_x_y_sample_weight(_tensors(batch))
                _upstream.call_model(model, x, training=training)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        shapes = [np.shape(leaf) for leaf in keras.tree.flatten(batch[0])]
        raise UserError(
            f"batch begins with x of shape {', '.join(map(str, shapes))}, which the model "
            f"{model.name!r} does not accept ({error}): {_HINT}."
        ) from error


def stateless_loss(model: keras.Model, batch: Any, *, training: bool) -> float:
    """Return the model's loss on a batch; no variable of the model changes."""
    with stateless_pass(model):
        return float(mean_loss(model, _tensors(batch), training=training))


@contextlib.contextmanager
def observed_moments(model: keras.Model) -> Iterator[dict[str, dict[int, list[Any]]]]:
    """Record the moments of batch norms' inputs: path → replica → `Kernels.local_moments` per call.

    A batch norm that is not synchronized gets the rows of each replica separately, as in training.
    """
    found: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    norms = batch_norms(model)
    replicas = model.distribute_strategy.num_replicas_in_sync
    alone = {id(norm) for norm in unsynchronized_batch_norms(model)}

    def observe(norm: Any) -> None:
        call, parts = norm.call, replicas if id(norm) in alone else 1

        def observed_call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            inputs, mask = tf.convert_to_tensor(inputs), kwargs.pop("mask", None)
            size = -(-inputs.shape[0] // parts)  # as TensorFlow divides a batch over replicas
            outputs = []
            for replica in range(-(-inputs.shape[0] // size)):
                rows = slice(replica * size, (replica + 1) * size)
                own = {} if mask is None else {"mask": mask[rows]}
                found[norm.path][replica].append(_moments(norm, inputs[rows], **own))
                outputs.append(call(inputs[rows], *args, **kwargs, **own))
            return tf.concat(outputs, 0)

        norm.call = observed_call

    try:
        for norm in norms:
            observe(norm)
        yield found
    finally:
        for norm in norms:
            norm.__dict__.pop("call", None)


def _moments(norm: Any, x: Any, mask: Any = None) -> Any:
    rank, dtype = len(x.shape), keras.backend.result_type(x.dtype.name, "float32")
    kernels = Kernels(rank, norm.axis % rank, dtype, dtype, norm.epsilon)
    return kernels.local_moments(x, None if mask is None else broadcast_mask(mask, x))


def _tensors(batch: Any) -> Any:
    def tensor(leaf: Any) -> Any:
        return None if leaf is None else tf.convert_to_tensor(leaf)

    return keras.tree.map_structure(tensor, batch)
