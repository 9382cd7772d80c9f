"""Causes in the data: no training can be repeated if its samples cannot."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import UserError
from ...user_model.data import checked_data
from ..arrays import dense_parts, rows_of
from ..batches import call_data, first_batches
from ..finding import Finding
from ..options import CheckOptions
from ..source_lines import calls_in, first, line_of_definition
from ..training import Trained
from ..workers import OTHER_SAMPLES
from .build import draws_unseeded

_BATCHES = 3
# More take too long to read: it is not known then whether only their order changes.
_MOST_SAMPLES = 100_000


def check_data(data: Any, options: CheckOptions) -> list[Finding]:
    """Find out whether data give the same samples again after the same seed.

    Args:
        data: A function that returns them, or they themselves.
        options: Of the check.
    """
    if not callable(data) and checked_data(data).has_arrays:
        return []
    try:
        one, other = _samples(data, options), _samples(data, options)
    except UserError:
        return []  # said before
    if _same(one, other):
        return []
    made = _make(data, options)
    line = _drawing_line(data, type(data), type(made))
    if not isinstance(made, tuple) and _differs_each_time(made, options):
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
        _without_seed(
            "two calls of it after the same keras.utils.set_random_seed gave different samples",
            line,
        )
    ]


def check_samples(data: Any, trainings: Sequence[Trained]) -> list[Finding]:
    """Find out whether other processes had the same samples.

    Args:
        data: A function that returns the data.
        trainings: Those of the check, also on several workers.
    """
    if not any(training.record.error == OTHER_SAMPLES for training in trainings):
        return []
    shown_by = "after the same keras.utils.set_random_seed, another process has other samples"
    return [_without_seed(shown_by, _drawing_line(data))]


def _without_seed(shown_by: str, line: str) -> Finding:
    return Finding(
        name="data_without_seed",
        text="the data function draws without a seed, so every run trains on other samples",
        shown_by=shown_by,
        fix="pass a seed to what it draws or shuffles with: np.random.default_rng(0),"
        " dataset.shuffle(…, seed=0)",
        line=line,
    )


def _drawing_line(*definitions: Any) -> str:
    places = [place for place in definitions if _has_source(place)]
    line = first(line for place in places for line in calls_in(place, draws_unseeded))
    return line or first(filter(None, map(line_of_definition, places)))


def _make(data: Any, options: CheckOptions) -> Any:
    keras.utils.set_random_seed(options.seed)
    return checked_data(call_data(data, options.requested_batch_size)).training


def _samples(data: Any, options: CheckOptions) -> list[Any]:
    made = _make(data, options)
    return dense_parts(made if isinstance(made, tuple) else first_batches(made, _BATCHES))


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
    """A number of the samples that their order does not change; of too many, always the same."""
    count = int(data.cardinality()) if isinstance(data, tf.data.Dataset) else -1
    sums = samples = 0
    for batch in data if count >= 0 else first_batches(data, _BATCHES):
        rows = [rows_of(leaf) for leaf in keras.tree.flatten(batch) if leaf is not None]
        samples += len(rows[0])
        if samples > _MOST_SAMPLES:
            return 0
        for row in zip(*rows, strict=True):
            sums ^= hash(row)
    return sums


def _has_source(place: Any) -> bool:
    return inspect.isfunction(place) or inspect.ismethod(place) or inspect.isclass(place)
