"""An upstream test for each private name that kdist uses: where Keras or TensorFlow has it.

When one fails, upstream has renamed or removed the name: its message says which lines use it.
Change them, and the name here.
"""

import atexit
import importlib
import pkgutil

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from tensorflow.python.distribute import input_lib
from tensorflow.python.eager import context
from used_private_names import other_private_names, used_private_names

USED = used_private_names()
DOTTED = sorted(name for name in USED if "." in name)
# Public attributes that no documentation promises.
UNDOCUMENTED = {"inner_optimizer", "overwrite_with_gradient"}
# What kdist's optimizers inherit, as Keras's own do.
INHERITED = {"_get_variable_index"}
SCORE = keras_tuner.Objective("score", "max")
ROWS = np.ones((4, 1), "float32")

# Names by what has them: a class, a module, or an object that a function below makes.
NAMES = {
    "model": "_call_has_training_arg _compile_config _compute_loss _distribute_strategy"
    " _flatten_layers _functional _resolve_auto_jit_compile"
    " _trainable_variables",
    "functional": "_inputs_struct",
    "trainer": "_get_metrics_result_or_logs _initial_epoch"
    " _make_function _maybe_symbolic_build _symbolic_build",
    "model_in_fit": "_eval_epoch_iterator",
    "variable": "_initialize _value overwrite_with_gradient",
    "metric": "_fn_kwargs",
    "optimizer": "_distribution_strategy _get_variable_index _iterations _learning_rate"
    " _model_variables_moving_average _trainable_variables"
    " _update_model_variables_moving_average",
    "multi_optimizer": "_inner_optimizers",
    "scaled_optimizer": "inner_optimizer",
    "checkpoints": "_batches_seen_since_last_saving _last_batch_seen",
    "board": "_global_test_batch _global_train_batch",
    "tracking_board": "_writers",
    "callback_list": "_progbar",
    "averages": "_ema_weights_in_model _finalize_ema_values",
    "epoch": "_current_iterator _distribute_strategy _distributed_dataset _enumerate_iterator"
    " _get_iterator _interrupted_warning _num_batches _steps_seen",
    "dataset_adapter": "_dataset",
    "generator_adapter": "_first_batches",
    "batches": "_batch_size _drop_remainder _functions _inputs",
    "shuffled": "_seed _seed2",
    "parallel_map": "_deterministic",
    "distributed": "_original_dataset",
    "per_replica_spec": "_value_specs",
    "sparse_spec": "_from_compatible_tensor_list",
    "workers": "_collective_key_base",
    "workers_extended": "_cluster_spec _communication_options"
    " _get_variable_creator_initial_value _host_cross_device_ops _id_in_cluster _num_workers"
    " _update_config_proto",
    "collective_ops": "_launchers",
    "collectives": "_all_gather _collective_keys _device _get_ordering_token _group_key _group_size"
    " _next_instance_key _options _use_unique_instance_key",
    "distributed_iterator": "_replica_order _strategy",
    "input": "_calculate_replicas_with_values _create_distributed_tensor_spec",
    "exit_functions": "_run_exitfuncs",
    "slurm": "_port_base _rank _task_configuration",
    "context": "_context_handle",
    "seeded_context": "_rng",
    "graph": "_add_function _add_function_recursive _create_op_internal"
    " _distribution_strategy_stack _get_function _is_function",
    "operation": "_set_attr",
    "mirrored": "_collective_ops _container_strategy _create_variable _cross_device_ops"
    " _get_cross_device_ops _in_multi_worker_mode _input_workers_with_options"
    " _num_replicas_in_sync",
    "mirrored_variable": "_primary",
    "resource_variable": "_read_variable_op _strided_slice_assign",
    "oracle": "_get_oracle_fname _get_trial_dir _retry_queue _save_trial",
    "hyperband": "_brackets _current_bracket _get_num_brackets _get_num_rounds _get_size"
    " _start_new_bracket",
    "tuner": "_build_and_fit_model _build_hypermodel _get_build_config_fname"
    " _get_checkpoint_fname _get_tuner_fname _is_worker _override_compile_args"
    " _populate_initial_space _run_and_update_trial _try_build _try_run_and_update_trial",
}


def functional():
    x = keras.Input((1,))
    return keras.Model(x, keras.layers.Dense(1, activation="sigmoid")(x))


def compiled():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def model_in_fit():
    model, seen = compiled(), []
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(set(vars(model))))
    model.fit(ROWS, ROWS, validation_data=(ROWS, ROWS), verbose=0, callbacks=[look])
    return type("Seen", (), dict.fromkeys(seen[0]))


def averaged():
    optimizer = keras.optimizers.SGD(use_ema=True)
    optimizer.build(compiled().trainable_variables)
    return optimizer


def multi_optimizer():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("new in Keras 3.15")
    return keras.optimizers.MultiOptimizer([keras.optimizers.SGD()])


def tracking_board():
    board = keras.callbacks.TensorBoard()
    board.set_model(compiled())
    return board


def epoch(x, y=None):
    return TFEpochIterator(x=x, y=y, distribute_strategy=two_replicas())


def slurm():
    variables = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "n1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (variables | {"SLURM_STEP_TASKS_PER_NODE": "1"}).items():
            patch.setenv(name, value)
        return tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False
        )


def two_replicas():
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def resource_variable():
    return tf.Variable(0.0)


def mirrored_variable():
    with two_replicas().scope():
        return tf.Variable(1.0)


def distributed():
    return two_replicas().experimental_distribute_dataset(dataset())


def workers_extended():
    return tf.distribute.MultiWorkerMirroredStrategy().extended


def collectives():
    return workers_extended()._cross_device_ops._launchers[0]


def dataset():
    return tf.data.Dataset.from_tensor_slices(ROWS).batch(2)


OBJECTS = {
    "model": compiled,
    "functional": functional,
    "trainer": compiled,
    "model_in_fit": model_in_fit,
    "variable": lambda: keras.Variable(1.0),
    "metric": lambda: keras.metrics.MeanSquaredError(),
    "optimizer": averaged,
    "multi_optimizer": multi_optimizer,
    "scaled_optimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    "checkpoints": lambda: keras.callbacks.ModelCheckpoint("best.keras"),
    "board": lambda: keras.callbacks.TensorBoard(),
    "tracking_board": tracking_board,
    "callback_list": lambda: keras.callbacks.CallbackList(add_progbar=True),
    "averages": lambda: keras.callbacks.SwapEMAWeights(),
    "epoch": lambda: epoch(ROWS, ROWS),
    "dataset_adapter": lambda: epoch(dataset()).data_adapter,
    "generator_adapter": lambda: epoch(rows for rows in [(ROWS, ROWS)]).data_adapter,
    "batches": dataset,
    "shuffled": lambda: dataset().shuffle(2),
    "parallel_map": lambda: dataset().map(lambda x: x, num_parallel_calls=2, deterministic=False),
    "distributed": distributed,
    "sparse_spec": lambda: tf.SparseTensorSpec,
    "per_replica_spec": lambda: distributed().element_spec,
    "workers": tf.distribute.MultiWorkerMirroredStrategy,
    "workers_extended": workers_extended,
    "collective_ops": lambda: workers_extended()._cross_device_ops,
    "collectives": collectives,
    "distributed_iterator": lambda: iter(distributed()),
    "input": lambda: input_lib,
    "exit_functions": lambda: atexit,
    "slurm": lambda: slurm(),
    "context": context.context,
    "graph": tf.Graph,
    "operation": lambda: tf.Operation,
    "mirrored": lambda: two_replicas().extended,
    "mirrored_variable": mirrored_variable,
    "resource_variable": resource_variable,
    "seeded_context": lambda: tf.random.set_seed(0) or context.context(),
    "oracle": lambda: keras_tuner.oracles.RandomSearchOracle(SCORE),
    "hyperband": lambda: keras_tuner.oracles.HyperbandOracle(SCORE),
    "tuner": lambda: keras_tuner.Tuner,
}


@pytest.mark.parametrize("kind", NAMES)
def test_upstream_has_the_names(kind):
    thing, names = OBJECTS[kind](), NAMES[kind].split()
    gone = [f"{name}, used in {USED.get(name)}" for name in names if not hasattr(thing, name)]
    assert not gone


@pytest.mark.parametrize("name", DOTTED)
def test_upstream_has_what_is_imported(name):
    assert hasattr(*_owner_and_name(name)), f"used in {USED[name]}"


def _owner_and_name(dotted):
    module, _, rest = dotted.rpartition(".")
    try:
        return importlib.import_module(module), rest
    except ImportError:  # an attribute of a class
        return pkgutil.resolve_name(module), rest


def test_every_private_name_that_is_used_has_a_test_and_no_other():
    """A new name goes into `NAMES`, at what has it."""
    known = {name for names in NAMES.values() for name in names.split()}
    assert {name for name in USED if "." not in name} == known - UNDOCUMENTED - INHERITED


def test_nothing_else_in_kdist_uses_a_private_name():
    assert other_private_names() == {"_exit"} | INHERITED  # `os._exit`
