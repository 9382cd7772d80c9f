"""The one home of private Keras and TensorFlow names, and of what is changed in them.

Every change is inert unless a model is trained under kdist's strategy.
`tests/test_upstream.py` has a canary for each, which fails on the day upstream needs it no more.
"""

import keras

from . import automatic_xla, draws, dropout, executions, preparation, stateful_rnn
from .active_batch import activate, active_batch, check_no_inner_graph
from .batch_memory import with_own_memory
from .iterators import let_go_aside
from .loss_rules import effective_sample_weight, gather, present_samples, watch_losses
from .names import (
    call_model,
    compute_loss,
    computes_stock_metrics,
    distribute,
    flatten_layers,
    global_seed,
    inputs_of,
    is_compiled_by_xla,
    is_overwritten,
    layer_states,
    loss_tracker,
    onednn_is_on,
    optimizers_of,
    own_step,
    own_steps,
    scope_of,
    set_strategy,
    stock_step,
    takes_any_batch,
    use_global_seed,
    with_attributes_of,
)
from .own_copies import own_copies, replica_index
from .preparation import is_peeking
from .replica_attributes import ReplicaAttributes
from .row_blocks import row_blocks
from .step_patches import watch_metrics
from .sublayers import replace_sublayers
from .versions import warn_of_unknown_keras

__all__ = [
    "ReplicaAttributes",
    "activate",
    "active_batch",
    "automatic_xla",
    "call_model",
    "check_no_inner_graph",
    "compute_loss",
    "computes_stock_metrics",
    "distribute",
    "draws",
    "dropout",
    "effective_sample_weight",
    "executions",
    "flatten_layers",
    "gather",
    "global_seed",
    "inputs_of",
    "is_compiled_by_xla",
    "is_overwritten",
    "is_peeking",
    "layer_states",
    "let_go_aside",
    "loss_tracker",
    "onednn_is_on",
    "optimizers_of",
    "own_copies",
    "own_step",
    "own_steps",
    "preparation",
    "present_samples",
    "replace_sublayers",
    "replica_index",
    "row_blocks",
    "scope_of",
    "set_strategy",
    "stateful_rnn",
    "stock_step",
    "takes_any_batch",
    "use_global_seed",
    "warn_of_unknown_keras",
    "watch_losses",
    "watch_metrics",
    "with_attributes_of",
    "with_own_memory",
]

warn_of_unknown_keras(keras.__version__)
