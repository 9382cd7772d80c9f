"""The only package that uses private names of Keras and TensorFlow, and that patches them.

Importing it changes nothing. `patches.install` does, when the first strategy is made.
"""

import keras

from . import patches, worker_keys
from .active_batch import activate, active_batch, check_no_inner_graph, replica_has_samples
from .batch_memory import copy_batches
from .build_for_fit import build_for_fit
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
from .gathered_batch import gather
from .hooks import AutoSteps, FitObserver, StrategyHooks, hooks_of, is_chief
from .inner_graphs import inner_graphs
from .internals import (
    call_model,
    compile_arguments,
    compute_loss,
    computes_stock_metrics,
    copy_keras_attributes,
    custom_step,
    distribute,
    effective_sample_weight,
    flatten_layers,
    function_arguments,
    global_seed,
    has_call,
    has_dynamic_batch_size,
    inputs_of,
    is_compiled_by_xla,
    is_overwritten,
    layer_states,
    loss_tracker,
    metric_states,
    onednn_is_on,
    optimization_barrier,
    optimizers_of,
    overridden_steps,
    random_seed,
    schedule_name,
    set_strategy,
    stock_step,
    strategy_of,
    use_global_seed,
    with_global_seed,
)
from .iterators import release_in_background
from .kept_seeds import kept_seeds
from .keras_version import warn_of_unknown_keras
from .one_device import divides_step, one_device, traced_strategy, unconverted
from .optimizer_steps import has_schedule, largest_rate, step_counters, steps_taken
from .patches.fit_hooks import is_inferring_shapes
from .patches.worker_callbacks import is_of_the_chief
from .replica_attributes import ReplicaAttributes
from .replica_local_variables import replica_index, replica_local_variables
from .resumed_logs import set_resumed_logs
from .row_blocks import joined_batches, row_blocks
from .row_counts import attached_counts
from .row_slices import (
    constant_value,
    is_along_rows,
    is_an_order,
    is_by_sample,
    is_reversed,
    limit_of_order,
    puts_axis_first,
    takes_all_rows,
)
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
    local_copy,
    observe_step,
    own_weights,
)
from .sublayers import replace_sublayers
from .worker_devices import (
    is_started,
    multi_worker_extended,
    replica_place,
    replica_values,
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
    "ReplicaAttributes",
    "SlurmTasks",
    "StrategyHooks",
    "abort_collectives",
    "activate",
    "active_batch",
    "array_sizes",
    "attach",
    "attach_observers",
    "attached_counts",
    "averaged_variables",
    "averaging_optimizers",
    "batch_size_of",
    "build_for_fit",
    "call_model",
    "check_no_inner_graph",
    "compile_arguments",
    "compute_loss",
    "computes_stock_metrics",
    "constant_value",
    "copy_batches",
    "copy_keras_attributes",
    "custom_step",
    "defer_average",
    "detach_observers",
    "distribute",
    "divides_step",
    "effective_sample_weight",
    "failures",
    "finish_average",
    "flatten_layers",
    "flush_summaries",
    "function_arguments",
    "gather",
    "global_seed",
    "global_seed_state",
    "has_attributes",
    "has_call",
    "has_dynamic_batch_size",
    "has_schedule",
    "has_swapped_averages",
    "hooks_of",
    "inner_graphs",
    "inputs_of",
    "is_along_rows",
    "is_an_order",
    "is_average_warmed_up",
    "is_by_sample",
    "is_chief",
    "is_compiled_by_xla",
    "is_inferring_shapes",
    "is_lost",
    "is_lost_connection",
    "is_of_the_chief",
    "is_overwritten",
    "is_reversed",
    "is_started",
    "joined_batches",
    "kept_seeds",
    "largest_rate",
    "layer_states",
    "limit_of_order",
    "local_copy",
    "loss_tracker",
    "make_global_seed_state",
    "metric_states",
    "multi_worker_extended",
    "observe_step",
    "one_device",
    "onednn_is_on",
    "optimization_barrier",
    "optimizers_of",
    "overridden_steps",
    "own_weights",
    "pass_over_data",
    "patches",
    "puts_axis_first",
    "random_seed",
    "release_in_background",
    "replace_sublayers",
    "replica_has_samples",
    "replica_index",
    "replica_local_variables",
    "replica_place",
    "replica_values",
    "report_failure",
    "row_blocks",
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
    "takes_all_rows",
    "traced_strategy",
    "trained_variables",
    "unconverted",
    "use_global_seed",
    "warm_up_average",
    "warn_of_unknown_keras",
    "with_global_seed",
    "worker_addresses",
    "worker_counts",
    "worker_keys",
]

warn_of_unknown_keras(keras.__version__)
