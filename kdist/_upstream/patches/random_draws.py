"""Random draws of Keras and TensorFlow, each replica's those of its rows of the global batch."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random
from keras.src.random.seed_generator import SeedGenerator
from tensorflow.python.ops import stateless_random_ops

from ..draws import (
    compute_on_whole,
    draw_by_counter,
    draw_of_whole,
    drawing_for,
    replica_seed,
)
from ..hooks import replica_hooks
from ..patching import TENSORFLOW, Patch


def _next_seed(original: Callable[..., Any], generator: Any, ordered: bool = True) -> Any:
    seed = original(generator, ordered)
    return seed if replica_hooks() is None else replica_seed(seed)


def _gamma(original: Callable[..., Any], shape: Any, *, alpha: Any, **options: Any) -> Any:
    return draw_of_whole(original, shape, {"alpha": alpha}, **options)


def _binomial(
    original: Callable[..., Any], shape: Any, *, counts: Any, probs: Any, **options: Any
) -> Any:
    return draw_of_whole(original, shape, {"counts": counts, "probs": probs}, **options)


def _poisson(original: Callable[..., Any], shape: Any, *, lam: Any, **options: Any) -> Any:
    return draw_of_whole(original, shape, {"lam": tf.convert_to_tensor(lam)}, **options)


def _multinomial(
    original: Callable[..., Any], logits: Any, num_samples: Any, seed: Any, **options: Any
) -> Any:
    def draw(shape: Any, logits: Any) -> Any:
        del shape
        return original(logits, num_samples, seed, **options)

    with drawing_for(logits):
        return draw_of_whole(draw, tf.shape(logits), {"logits": logits})


def _uniform_int(original: Callable[..., Any], shape: Any, *, minval: Any, **options: Any) -> Any:
    draw = functools.partial(original, minval=minval)
    return draw_by_counter(draw, shape, dtype=minval.dtype, **options)


def _of_dtype(original: Callable[..., Any], shape: Any, *, dtype: Any, **options: Any) -> Any:
    draw = functools.partial(original, dtype=dtype)
    return draw_by_counter(draw, shape, dtype=dtype, **options)


def _shuffle(original: Callable[..., Any], x: Any, axis: int = 0, seed: Any = None) -> Any:
    """A batch's rows are shuffled over all replicas."""
    x = tf.convert_to_tensor(x)
    if axis != 0:
        return original(x, axis, seed)
    return compute_on_whole(lambda rows: original(rows, 0, seed), x)


def _mix(original: Callable[..., Any], layer: Any, data: Any, training: bool = True) -> Any:
    """Images are mixed with those of all replicas."""
    if not training:
        return original(layer, data, training)
    return compute_on_whole(lambda rows: original(layer, rows, training), data)


_WHY = "Draws for a sample by its place on a replica, so that all replicas draw the same."

_DRAWS: dict[str, dict[str, Callable[..., Any]]] = {
    "gen_stateless_random_ops_v2": {
        "stateless_random_uniform_v2": functools.partial(_of_dtype, under_xla=True),
        "stateless_random_uniform_int_v2": functools.partial(_uniform_int, under_xla=True),
        "stateless_random_uniform_full_int_v2": functools.partial(_of_dtype, under_xla=True),
        # XLA makes normal numbers from pairs that lie half a tensor apart.
        "stateless_random_normal_v2": _of_dtype,
        # A value that is rejected is drawn again, from 256 numbers that are kept for it.
        "stateless_truncated_normal_v2": functools.partial(_of_dtype, counts_a_value=64),
        "stateless_random_gamma_v3": _gamma,
    },
    "gen_stateless_random_ops": {
        "stateless_random_binomial": _binomial,
        "stateless_random_poisson": _poisson,
        "stateless_multinomial": _multinomial,
    },
}

PATCHES = (
    Patch(
        owner=SeedGenerator,
        name="next",
        replacement=_next_seed,
        why="Gives all replicas the same seed, also where each is to draw for itself.",
        canary="test_seeds_are_the_same_on_every_replica",
    ),
    *(
        Patch(
            owner=stateless_random_ops,
            imported_as=module,
            name=name,
            replacement=replacement,
            why=_WHY,
            canary="test_replicas_draw_the_same_for_different_samples",
            seen_in=TENSORFLOW,
        )
        for module, draws in _DRAWS.items()
        for name, replacement in draws.items()
    ),
    Patch(
        owner=keras_random,
        name="shuffle",
        replacement=_shuffle,
        why="Shuffles the rows of each replica among themselves.",
        canary="test_rows_are_shuffled_and_mixed_within_a_replica",
    ),
    *(
        Patch(
            owner=layer,
            name="call",
            replacement=_mix,
            why="Mixes images of the same replica only.",
            canary="test_rows_are_shuffled_and_mixed_within_a_replica",
        )
        for layer in (keras.layers.CutMix, keras.layers.MixUp)
    ),
)
