"""Patch random draws: each replica draws for its rows of the global batch."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random
from keras.src.random.seed_generator import SeedGenerator
from tensorflow.python.ops import stateless_random_ops

from ..draws import (
    compute_on_all_rows,
    draw_by_counter,
    draw_global_rows,
    drawing_for,
    replica_seed,
)
from ..hooks import replica_hooks
from ..patching import TENSORFLOW, Patch


def _next_seed(original: Callable[..., Any], generator: Any, ordered: bool = True) -> Any:
    seed = original(generator, ordered)
    return seed if replica_hooks() is None else replica_seed(seed)


def _gamma(original: Callable[..., Any], shape: Any, *, alpha: Any, **options: Any) -> Any:
    return draw_global_rows(original, shape, {"alpha": alpha}, **options)


def _binomial(
    original: Callable[..., Any], shape: Any, *, counts: Any, probs: Any, **options: Any
) -> Any:
    return draw_global_rows(original, shape, {"counts": counts, "probs": probs}, **options)


def _poisson(original: Callable[..., Any], shape: Any, *, lam: Any, **options: Any) -> Any:
    return draw_global_rows(original, shape, {"lam": tf.convert_to_tensor(lam)}, **options)


def _multinomial(
    original: Callable[..., Any], logits: Any, num_samples: Any, seed: Any, **options: Any
) -> Any:
    def draw(shape: Any, logits: Any) -> Any:
        del shape
        return original(logits, num_samples, seed, **options)

    with drawing_for(logits):
        return draw_global_rows(draw, tf.shape(logits), {"logits": logits})


def _uniform_int(original: Callable[..., Any], shape: Any, *, minval: Any, **options: Any) -> Any:
    draw = functools.partial(original, minval=minval)
    return draw_by_counter(draw, shape, dtype=minval.dtype, **options)


def _of_dtype(original: Callable[..., Any], shape: Any, *, dtype: Any, **options: Any) -> Any:
    draw = functools.partial(original, dtype=dtype)
    return draw_by_counter(draw, shape, dtype=dtype, **options)


def _shuffle(original: Callable[..., Any], x: Any, axis: int = 0, seed: Any = None) -> Any:
    """Shuffle the rows of a batch over all replicas."""
    x = tf.convert_to_tensor(x)
    if axis != 0:
        return original(x, axis, seed)
    return compute_on_all_rows(lambda rows: original(rows, 0, seed), x)


def _mix(original: Callable[..., Any], layer: Any, data: Any, training: bool = True) -> Any:
    """Mix images with those of all replicas."""
    if not training:
        return original(layer, data, training)
    return compute_on_all_rows(lambda rows: original(layer, rows, training), data)


_WHY = "Draws for a sample by its place on the replica, so all replicas draw the same numbers."

_DRAWS: dict[str, dict[str, Callable[..., Any]]] = {
    "gen_stateless_random_ops_v2": {
        "stateless_random_uniform_v2": functools.partial(_of_dtype, under_xla=True),
        "stateless_random_uniform_int_v2": functools.partial(_uniform_int, under_xla=True),
        "stateless_random_uniform_full_int_v2": functools.partial(_of_dtype, under_xla=True),
        # XLA makes normal numbers from pairs of uniform ones that are half a tensor apart.
        "stateless_random_normal_v2": _of_dtype,
        # A rejected value is drawn again, from 256 numbers that are reserved for it.
        "stateless_truncated_normal_v2": functools.partial(_of_dtype, counts_per_value=64),
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
        why="Gives all replicas the same seed, even for draws that should differ.",
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
        why="Shuffles only within each replica.",
        canary="test_rows_are_shuffled_and_mixed_within_a_replica",
    ),
    *(
        Patch(
            owner=layer,
            name="call",
            replacement=_mix,
            why="Mixes images only within each replica.",
            canary="test_rows_are_shuffled_and_mixed_within_a_replica",
        )
        for layer in (keras.layers.CutMix, keras.layers.MixUp)
    ),
)
