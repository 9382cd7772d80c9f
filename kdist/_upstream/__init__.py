"""The one home of private Keras and TensorFlow names, and of what is changed in them.

Every change is inert unless a model is trained under kdist's strategy.
`tests/test_upstream.py` has a canary for each, which fails on the day upstream needs it no more.
"""

import keras

from . import automatic_xla, draws, dropout, executions, one_replica, preparation
from .active_batch import activate, active_batch
from .batch_memory import with_own_memory
from .iterators import let_go_aside
from .loss_rules import effective_sample_weight, present_samples
from .names import (
    call_model,
    compute_loss,
    computes_stock_metrics,
    distribute,
    flatten_layers,
    global_seed,
    inputs_of,
    is_compiled_by_xla,
    loss_tracker,
    onednn_is_on,
    own_steps,
    scope_of,
    set_strategy,
    stock_step,
    takes_any_batch,
    use_global_seed,
    with_attributes_of,
)
from .own_copies import own_copies, replica_index
from .row_blocks import row_blocks
from .sublayers import replace_sublayers
from .versions import warn_of_unknown_keras

__all__ = [
    "activate",
    "active_batch",
    "automatic_xla",
    "call_model",
    "compute_loss",
    "computes_stock_metrics",
    "distribute",
    "draws",
    "dropout",
    "effective_sample_weight",
    "executions",
    "flatten_layers",
    "global_seed",
    "inputs_of",
    "is_compiled_by_xla",
    "let_go_aside",
    "loss_tracker",
    "one_replica",
    "onednn_is_on",
    "own_copies",
    "own_steps",
    "preparation",
    "present_samples",
    "replace_sublayers",
    "replica_index",
    "row_blocks",
    "scope_of",
    "set_strategy",
    "stock_step",
    "takes_any_batch",
    "use_global_seed",
    "warn_of_unknown_keras",
    "with_attributes_of",
    "with_own_memory",
]

warn_of_unknown_keras(keras.__version__)
