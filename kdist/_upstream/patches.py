"""The patches: in which modules the functions are that kdist replaces in Keras and TensorFlow.

By name they are in `docs/design/keras-patches.md`, which `docs/keras_patches_page.py` writes.
"""

import functools

from . import (
    error_messages,
    fit,
    replicas,
    rows,
    steps,
    worker_callbacks,
    worker_saving,
    worker_steps,
)
from .patching import Patch

# What every strategy needs.
ONE_MACHINE: tuple[Patch, ...] = (
    *fit.DATA_PATCHES,
    *fit.HOOK_PATCHES,
    *fit.OBSERVER_PATCHES,
    *fit.OPTION_PATCHES,
    *error_messages.PATCHES,
    *steps.PATCHES,
    *replicas.PATCHES,
    *rows.PATCHES,
)

# What strategies of several workers need besides.
WORKERS: tuple[Patch, ...] = (
    *worker_steps.PATCHES,
    *rows.WORKER_PATCHES,
    *worker_callbacks.PATCHES,
    *worker_saving.PATCHES,
)

PATCHES = (*ONE_MACHINE, *WORKERS)


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
    for patch in fit.DATA_PATCHES:
        patch.install()
