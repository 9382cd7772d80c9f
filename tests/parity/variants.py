"""Bases of most cases, and their variations."""

import dataclasses

import numpy as np
import samples
import small_models as models
from harness import Case
from keras import optimizers

UNEVEN = 27  # with batches of 8 the last one has 3
ONE_LEFT = 25  # with batches of 8 the last one has 1: replicas without a sample


def uneven(case, **changes):
    return dataclasses.replace(case, **{"samples": UNEVEN, **changes})


def unscored(case):
    """Return a case without evaluation, which another case has."""
    return dataclasses.replace(case, scored=False)


def optimized(make, **changes):
    """An optimizer does not touch evaluation, so only training is compared."""
    return Case(**{"optimizer": make, "scored": False, **changes})


def ramp(count):
    """A weight for each sample."""
    return np.linspace(0.1, 2, count)


plain = Case()
in_arrays = Case(feed=samples.arrays)
bn = Case(model=lambda: models.mlp(models.synchronized))

HEADS = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
two_heads = Case(
    predicted=True,
    model=models.dict_heads,
    data=samples.heads,
    samples=UNEVEN,
    optimizer=lambda: optimizers.SGD(0.01),
    compile=lambda: {
        "loss": dict(HEADS),
        "loss_weights": {"kind": 1.0, "size": 0.2},
        "metrics": {"kind": ["accuracy"], "size": ["mae"]},
    },
)
