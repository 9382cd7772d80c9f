"""The one home of private Keras and TensorFlow names, and of what is changed in them.

Every change is inert unless a model is trained under kdist's strategy.
`tests/test_upstream.py` has a canary for each, which fails on the day upstream needs it no more.
"""

import keras

from . import automatic_xla, dropout, executions, one_replica, preparation, seeds
from .batch_memory import with_own_memory
from .iterators import let_go_aside
from .loss_rules import LossRules, effective_sample_weight, loss_rules, present_samples
from .names import (
    call_model,
    compute_loss,
    computes_stock_metrics,
    distribute,
    flatten_layers,
    inputs_of,
    is_compiled_by_xla,
    loss_tracker,
    onednn_is_on,
    own_steps,
    scope_of,
    set_strategy,
    stock_step,
    with_attributes_of,
)
from .own_copies import own_copies, replica_index
from .sublayers import replace_sublayers
from .versions import warn_of_unknown_keras

__all__ = [
    "LossRules",
    "automatic_xla",
    "call_model",
    "compute_loss",
    "computes_stock_metrics",
    "distribute",
    "dropout",
    "effective_sample_weight",
    "executions",
    "flatten_layers",
    "inputs_of",
    "is_compiled_by_xla",
    "let_go_aside",
    "loss_rules",
    "loss_tracker",
    "one_replica",
    "onednn_is_on",
    "own_copies",
    "own_steps",
    "preparation",
    "present_samples",
    "replace_sublayers",
    "replica_index",
    "scope_of",
    "seeds",
    "set_strategy",
    "stock_step",
    "warn_of_unknown_keras",
    "with_attributes_of",
    "with_own_memory",
]

warn_of_unknown_keras(keras.__version__)
