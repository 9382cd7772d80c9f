"""Causes in the data: no training can be repeated if its samples cannot."""

import inspect
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import UserError
from ..batches import call_data, first_batches, is_batched, training_part
from ..finding import Finding
from ..options import CheckOptions
from ..source_lines import calls_in, first, line_of_definition
from .build import draws_unseeded

_BATCHES = 3
# Of more samples, only the order of the first batches can be told.
_MOST_SAMPLES = 100_000


def check_data(data: Any, options: CheckOptions) -> list[Finding]:
    """Find out whether data give the same samples again after the same seed.

    Args:
        data: A function that returns them, or they themselves.
        options: Of the check.
    """
    if not callable(data) and not is_batched(data):
        return []  # arrays
    if inspect.isgenerator(data):
        return []  # can be read only once
    try:
        one, other = _samples(data, options), _samples(data, options)
    except UserError:
        return []  # said before
    if _same(one, other):
        return []
    made = _make(data, options)
    places = [place for place in (data, type(data), type(made)) if _has_source(place)]
    line = first(line for place in places for line in calls_in(place, draws_unseeded))
    line = line or first(filter(None, map(line_of_definition, places)))
    if is_batched(made) and _differs_each_time(made, options):
        return [
            Finding(
                name="data_differ_each_time",
                text="the data give other samples each time that they are read, and no seed"
                " repeats them: on another number of replicas, you train on other samples",
                shown_by="the same data, read twice after the same keras.utils.set_random_seed,"
                " differ",
                fix="draw augmentation from a seed and the index of the batch, such as"
                " np.random.default_rng((seed, index)), or in a layer of the model (keras.layers"
                ".RandomFlip …)",
                line=line,
            )
        ]
    return [
        Finding(
            name="data_without_seed",
            text="the data function draws without a seed, so every run trains on other samples",
            shown_by="two calls of it after the same keras.utils.set_random_seed gave different"
            " samples",
            fix="pass a seed to what it draws or shuffles with: np.random.default_rng(0),"
            " dataset.shuffle(…, seed=0)",
            line=line,
        )
    ]


def _make(data: Any, options: CheckOptions) -> Any:
    keras.utils.set_random_seed(options.seed)
    return training_part(call_data(data, options.requested_batch_size))


def _samples(data: Any, options: CheckOptions) -> list[Any]:
    made = _make(data, options)
    if is_batched(made):
        return [leaf for batch in first_batches(made, _BATCHES) for leaf in _leaves(batch)]
    return _leaves(made)


def _leaves(data: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in keras.tree.flatten(data) if leaf is not None]


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and _equal(a, b) for a, b in zip(one, other, strict=True)
    )


def _equal(one: Any, other: Any) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _differs_each_time(made: Any, options: CheckOptions) -> bool:
    """Whether one object, made once, gives other samples when it is read again.

    Their order may change, as `shuffle` has it for each epoch.
    """
    sums = []
    for _ in range(2):
        keras.utils.set_random_seed(options.seed)
        sums.append(_sum_of_samples(made))
    return sums[0] != sums[1]


def _sum_of_samples(data: Any) -> int:
    """A number of the samples that their order does not change."""
    count = int(data.cardinality()) if isinstance(data, tf.data.Dataset) else -1
    size = 1 if count < 0 else count
    batches = first_batches(data, _BATCHES if count < 0 else min(size, _MOST_SAMPLES))
    hashes = 0
    for batch in batches:
        leaves = _leaves(batch)
        for row in range(len(leaves[0])):
            hashes ^= hash(tuple(leaf[row].tobytes() for leaf in leaves))
    return hashes


def _has_source(place: Any) -> bool:
    return inspect.isfunction(place) or inspect.ismethod(place) or inspect.isclass(place)
