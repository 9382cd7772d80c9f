"""Every function of Keras and TensorFlow that is replaced: the table, and how it is put in.

`python -m kdist._upstream.patches` prints the table as Markdown.
"""

import functools

import keras

from ..patching import Patch
from . import (
    batch_norm,
    compile_options,
    dropout,
    fit_hooks,
    gradients,
    losses,
    merge_call,
    metrics,
    random_draws,
    stateful_rnn,
    variables,
)

PATCHES: tuple[Patch, ...] = (
    *fit_hooks.PATCHES,
    *compile_options.PATCHES,
    *losses.PATCHES,
    *gradients.PATCHES,
    *metrics.PATCHES,
    *variables.PATCHES,
    *merge_call.PATCHES,
    *batch_norm.PATCHES,
    *stateful_rnn.PATCHES,
    *random_draws.PATCHES,
    *dropout.PATCHES,
)


@functools.cache
def install() -> None:
    """Put the patches in, once in a process, as the first strategy is made."""
    for patch in PATCHES:
        patch.install()


def install_for(model: keras.Model) -> None:
    """Put those in that are for the classes which a model may use: a program may make new ones."""
    for patch in PATCHES:
        patch.install_for(model)
