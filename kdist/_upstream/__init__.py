"""The one home of private Keras and TensorFlow names, and of what is changed in them.

Importing this changes nothing: `patches.install` does, as the first strategy is made.
"""

import keras

from . import patches
from .active_batch import activate, active_batch, check_no_inner_graph, present_samples
from .batch_memory import copy_batches
from .hooks import AutoSteps, StrategyHooks
from .internals import (
    call_model,
    compute_loss,
    computes_stock_metrics,
    distribute,
    effective_sample_weight,
    flatten_layers,
    global_seed,
    inputs_of,
    is_compiled_by_xla,
    is_overwritten,
    layer_states,
    loss_tracker,
    onednn_is_on,
    optimizers_of,
    overridden_steps,
    own_step,
    scope_of,
    set_strategy,
    stock_step,
    takes_any_batch,
    use_global_seed,
    with_attributes_of,
)
from .iterators import release_in_background
from .patches.fit_hooks import is_peeking
from .replica_attributes import ReplicaAttributes
from .replica_local_variables import replica_index, replica_local_variables
from .row_blocks import row_blocks
from .sublayers import replace_sublayers
from .versions import warn_of_unknown_keras
from .whole_batch import gather

__all__ = [
    "AutoSteps",
    "ReplicaAttributes",
    "StrategyHooks",
    "activate",
    "active_batch",
    "call_model",
    "check_no_inner_graph",
    "compute_loss",
    "computes_stock_metrics",
    "copy_batches",
    "distribute",
    "effective_sample_weight",
    "flatten_layers",
    "gather",
    "global_seed",
    "inputs_of",
    "is_compiled_by_xla",
    "is_overwritten",
    "is_peeking",
    "layer_states",
    "loss_tracker",
    "onednn_is_on",
    "optimizers_of",
    "overridden_steps",
    "own_step",
    "patches",
    "present_samples",
    "release_in_background",
    "replace_sublayers",
    "replica_index",
    "replica_local_variables",
    "row_blocks",
    "scope_of",
    "set_strategy",
    "stock_step",
    "takes_any_batch",
    "use_global_seed",
    "warn_of_unknown_keras",
    "with_attributes_of",
]

warn_of_unknown_keras(keras.__version__)
