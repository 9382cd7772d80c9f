"""The patches: all functions of Keras and TensorFlow that kdist replaces.

`python -m kdist._upstream.patches` prints them as a Markdown table.
"""

import functools

import keras

from ..patching import Patch
from . import (
    activations,
    average_loss,
    batch_norm,
    compile_options,
    data_epochs,
    dropout,
    fit_hooks,
    fit_observers,
    gradients,
    losses,
    merge_call,
    metrics,
    random_draws,
    sparse_rows,
    stateful_rnn,
    variables,
    worker_callbacks,
    worker_collectives,
    worker_progress,
    worker_rows,
    worker_saving,
    workers,
)

# What every strategy needs.
ONE_MACHINE: tuple[Patch, ...] = (
    *data_epochs.PATCHES,
    *fit_hooks.PATCHES,
    *fit_observers.PATCHES,
    *compile_options.PATCHES,
    *gradients.OF_ALL,
    *variables.NUMBERS,
    *dropout.PATCHES,
    *activations.PATCHES,
    *sparse_rows.PATCHES,
)

# What a strategy needs whose replicas each run Keras's step: that of several workers.
WORKERS: tuple[Patch, ...] = (
    *losses.PATCHES,
    *average_loss.PATCHES,
    *gradients.PATCHES,
    *metrics.PATCHES,
    *variables.PATCHES,
    *merge_call.PATCHES,
    *batch_norm.PATCHES,
    *stateful_rnn.PATCHES,
    *random_draws.PATCHES,
    *workers.PATCHES,
    *worker_collectives.PATCHES,
    *worker_rows.PATCHES,
    *worker_callbacks.PATCHES,
    *worker_saving.PATCHES,
    *worker_progress.PATCHES,
)

PATCHES = (*ONE_MACHINE, *WORKERS)
SECTIONS = {"Of all strategies": ONE_MACHINE, "Of several workers": WORKERS}


@functools.cache
def install() -> None:
    """Install the patches of all strategies, once per process, when the first one is made."""
    for patch in ONE_MACHINE:
        patch.install()


@functools.cache
def install_for_workers() -> None:
    """Install those of strategies whose replicas each run Keras's step."""
    for patch in WORKERS:
        patch.install()


@functools.cache
def install_for_data() -> None:
    """Install the patches that tell training data their epoch, when the first data are made."""
    for patch in data_epochs.PATCHES:
        patch.install()


def install_for(model: keras.Model) -> None:
    """Install the patches of the classes that a model may use; called for each model."""
    for patch in PATCHES:
        patch.install_for(model)
