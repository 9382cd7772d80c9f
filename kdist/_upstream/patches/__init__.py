"""The patches: all functions of Keras and TensorFlow that kdist replaces.

`python -m kdist._upstream.patches` prints them as a Markdown table.
"""

import functools

from ..patching import Patch
from . import (
    activations,
    compile_options,
    data_epochs,
    dropout,
    fit_hooks,
    fit_observers,
    gradients,
    sparse_rows,
    variables,
    worker_callbacks,
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
    *gradients.PATCHES,
    *variables.PATCHES,
    *dropout.PATCHES,
    *activations.PATCHES,
    *sparse_rows.PATCHES,
)

# What strategies of several workers need besides.
WORKERS: tuple[Patch, ...] = (
    *workers.PATCHES,
    *worker_rows.PATCHES,
    *worker_callbacks.PATCHES,
    *worker_saving.PATCHES,
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
    """Install those of strategies of several workers, when the first one is made."""
    for patch in WORKERS:
        patch.install()


@functools.cache
def install_for_data() -> None:
    """Install the patches that tell training data their epoch, when the first data are made."""
    for patch in data_epochs.PATCHES:
        patch.install()
