"""The patches, by module: the functions of Keras and TensorFlow that kdist replaces.

`docs/keras_patches_page.py` writes `docs/design/keras-patches.md`, with the patches by name.
"""

import functools

from . import (
    compile_options,
    fit,
    one_device_tracing,
    row_counts,
    step_errors,
    worker_callbacks,
    worker_saving,
    worker_steps,
)
from .patching import Patch

# Patches for every strategy.
ONE_MACHINE: tuple[Patch, ...] = (
    *fit.DATA_PATCHES,
    *fit.PATCHES,
    *compile_options.PATCHES,
    *step_errors.PATCHES,
    *one_device_tracing.PATCHES,
    *row_counts.PATCHES,
)

# Additional patches for strategies of several workers.
WORKERS: tuple[Patch, ...] = (
    *worker_steps.PATCHES,
    *row_counts.WORKER_PATCHES,
    *worker_callbacks.PATCHES,
    *worker_saving.PATCHES,
)

PATCHES = (*ONE_MACHINE, *WORKERS)


@functools.cache
def install() -> None:
    """Install the patches of all strategies, once per process, with the first strategy."""
    for patch in ONE_MACHINE:
        patch.install()


@functools.cache
def install_for_workers() -> None:
    """Install the patches for several workers, with the first strategy of several workers."""
    for patch in WORKERS:
        patch.install()


@functools.cache
def install_for_data() -> None:
    """Install the patches that pass the epoch to training data, with the first such data."""
    for patch in fit.DATA_PATCHES:
        patch.install()
