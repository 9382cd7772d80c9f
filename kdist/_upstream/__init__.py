"""The only package that uses private names of Keras and TensorFlow, and that patches them.

Importing it changes nothing. `patches.install` does, when the first strategy is made.
"""

import logging

import keras
import tensorflow as tf

from ..versions import untested
from . import patches, worker_keys
from .callback_attributes import (
    STATEFUL,
    STATELESS,
    defer_average,
    finish_average,
    flush_summaries,
    has_attributes,
    has_swapped_averages,
)
from .data_sources import array_sizes
from .fit import build_for_fit, build_for_step, pass_over_data, set_resumed_logs, start_fit_at
from .fit_data import FitData, FitDataset, attach, batch_size_of, samples_of
from .hooks import AutoSteps, FitObserver, StrategyHooks, hooks_of, is_chief
from .internals import (
    averaged_variables,
    call_model,
    compile_arguments,
    compute_loss,
    custom_step,
    distribute,
    flatten_layers,
    function_arguments,
    global_seed,
    global_seed_state,
    has_call,
    inputs_of,
    is_compiled_by_xla,
    is_overwritten,
    make_global_seed_state,
    metrics_of,
    onednn_is_on,
    optimization_barrier,
    optimizers_of,
    overridden_steps,
    random_seed,
    replace_sublayers,
    schedule_name,
    set_strategy,
    stock_step,
    strategy_of,
    trained_variables,
    with_global_seed,
)
from .iterators import copy_batches, release_in_background
from .optimizers import (
    averaging_optimizers,
    is_average_warmed_up,
    steps_taken,
    warm_up_average,
)
from .seeds import kept_seeds, seed_state, set_seed_state
from .steps import (
    attach_observers,
    detach_observers,
    divides_step,
    observe_step,
    own_weights,
    traced_strategy,
    unconverted,
)
from .worker_callbacks import is_of_the_chief
from .worker_devices import (
    MultiWorkerExtended,
    SlurmTasks,
    abort_collectives,
    failures,
    is_lost,
    is_lost_connection,
    is_started,
    report_failure,
    run_exit_functions,
    sum_over_workers,
    worker_addresses,
    worker_counts,
)

__all__ = [
    "STATEFUL",
    "STATELESS",
    "AutoSteps",
    "FitData",
    "FitDataset",
    "FitObserver",
    "MultiWorkerExtended",
    "SlurmTasks",
    "StrategyHooks",
    "abort_collectives",
    "array_sizes",
    "attach",
    "attach_observers",
    "averaged_variables",
    "averaging_optimizers",
    "batch_size_of",
    "build_for_fit",
    "build_for_step",
    "call_model",
    "compile_arguments",
    "compute_loss",
    "copy_batches",
    "custom_step",
    "defer_average",
    "detach_observers",
    "distribute",
    "divides_step",
    "failures",
    "finish_average",
    "flatten_layers",
    "flush_summaries",
    "function_arguments",
    "global_seed",
    "global_seed_state",
    "has_attributes",
    "has_call",
    "has_swapped_averages",
    "hooks_of",
    "inputs_of",
    "is_average_warmed_up",
    "is_chief",
    "is_compiled_by_xla",
    "is_lost",
    "is_lost_connection",
    "is_of_the_chief",
    "is_overwritten",
    "is_started",
    "kept_seeds",
    "make_global_seed_state",
    "metrics_of",
    "observe_step",
    "onednn_is_on",
    "optimization_barrier",
    "optimizers_of",
    "overridden_steps",
    "own_weights",
    "pass_over_data",
    "patches",
    "random_seed",
    "release_in_background",
    "replace_sublayers",
    "report_failure",
    "run_exit_functions",
    "samples_of",
    "schedule_name",
    "seed_state",
    "set_resumed_logs",
    "set_seed_state",
    "set_strategy",
    "start_fit_at",
    "steps_taken",
    "stock_step",
    "strategy_of",
    "sum_over_workers",
    "traced_strategy",
    "trained_variables",
    "unconverted",
    "warm_up_average",
    "with_global_seed",
    "worker_addresses",
    "worker_counts",
    "worker_keys",
]

if line := untested({"Keras": keras.__version__, "TensorFlow": tf.__version__}):
    logging.getLogger("kdist").warning(line)
