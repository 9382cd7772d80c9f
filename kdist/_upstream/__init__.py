"""The only package that uses private names of Keras and TensorFlow, and that patches them.

Importing it changes nothing. `patches.install` does, when the first strategy is made.
"""

import logging

import keras
import tensorflow as tf

from ..versions import untested
from . import patches, worker_keys
from .batch_memory import copy_batches
from .build_for_fit import build_for_fit, build_for_step
from .callback_attributes import (
    STATEFUL,
    STATELESS,
    defer_average,
    finish_average,
    flush_summaries,
    has_attributes,
    has_swapped_averages,
)
from .choose_data_source import array_sizes
from .data_spec import batch_size_of, samples_of
from .drawn_seeds import seed_state, set_seed_state
from .ema_warm_up import averaging_optimizers, is_average_warmed_up, warm_up_average
from .fit_data import FitData, FitDataset, attach
from .fit_start import pass_over_data, start_fit_at
from .hooks import AutoSteps, FitObserver, StrategyHooks, hooks_of, is_chief
from .inner_graphs import inner_graphs
from .internals import (
    call_model,
    compile_arguments,
    compute_loss,
    custom_step,
    distribute,
    flatten_layers,
    function_arguments,
    global_seed,
    has_call,
    inputs_of,
    is_compiled_by_xla,
    is_overwritten,
    metrics_of,
    onednn_is_on,
    optimization_barrier,
    optimizers_of,
    overridden_steps,
    random_seed,
    schedule_name,
    set_strategy,
    stock_step,
    strategy_of,
    with_global_seed,
)
from .iterators import release_in_background
from .kept_seeds import kept_seeds
from .one_device import divides_step, one_device, traced_strategy, unconverted
from .optimizer_steps import has_schedule, largest_rate, step_counters, steps_taken
from .patches.worker_callbacks import is_of_the_chief
from .resumed_logs import set_resumed_logs
from .saved_state import (
    averaged_variables,
    global_seed_state,
    make_global_seed_state,
    trained_variables,
)
from .slurm import SlurmTasks
from .step_observer import (
    attach_observers,
    detach_observers,
    observe_step,
    own_weights,
)
from .sublayers import replace_sublayers
from .worker_devices import (
    MultiWorkerExtended,
    is_started,
    worker_addresses,
    worker_counts,
)
from .worker_failures import (
    abort_collectives,
    failures,
    is_lost,
    is_lost_connection,
    report_failure,
    run_exit_functions,
)
from .worker_sums import sum_over_workers

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
    "has_schedule",
    "has_swapped_averages",
    "hooks_of",
    "inner_graphs",
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
    "largest_rate",
    "make_global_seed_state",
    "metrics_of",
    "observe_step",
    "one_device",
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
    "step_counters",
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
