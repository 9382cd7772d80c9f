"""Every case of the parity battery, by name."""

import functools

import custom_cases
import draw_cases
import harness
import input_cases
import loss_cases
import model_cases
import optimizer_cases

CASES = {
    **model_cases.CASES,
    **optimizer_cases.CASES,
    **loss_cases.CASES,
    **input_cases.CASES,
    **custom_cases.CASES,
    **draw_cases.CASES,
}

# Stock Keras trains these cases in a graph: without one, it gives all batches the same weight in
# the logged loss of each output. The others are the same without one, and tracing a graph takes
# longer than so few steps.
IN_A_GRAPH = {
    "two_heads_uneven",
    "two_heads_weighted",
    "listed_inputs_and_losses",
    "named_inputs_and_losses",
}

# The cases of the README's table.
IN_README = (
    "even",
    "uneven_last_batch",
    "fewer_samples_than_replicas",
    "batch_not_divisible",
    "bn",
    "plain_bn_built",
    "bn_uneven",
    "clipnorm",
    "global_clipnorm_uneven",
    "clipvalue",
    "accumulation",
    "ema_overwrite_uneven",
    "optimizer_Adam",
    "optimizer_LossScaleOptimizer",
    "l2",
    "activity_regularizer_uneven",
    "sample_weight_uneven",
    "loss_sum",
    "loss_mean_with_sample_weight_weighted",
    "custom_mean_loss_uneven",
    "two_heads_uneven",
    "weighted_metrics_uneven",
    "masked_gru_uneven",
    "masked_tagger_uneven",
    "embedding_global_clipnorm_uneven",
    "fine_tuning",
    "steps_per_execution_2",
    "compiled_outside_the_scope",
    "batch_by_batch",
    "generator",
    "py_dataset_of_arrays",
    "dropout_uneven",
    "dropout_accumulation",
    "augmentation_uneven",
    "recurrent_dropout_uneven",
    "attention_dropout_uneven",
    "custom_step_uneven",
    "custom_step_fewer_samples_than_replicas",
    "custom_step_clipped_and_accumulated",
    "custom_step_batch_norm",
    "custom_step_sum_uneven",
    "custom_step_gathered_uneven",
    "custom_step_twice",
    "custom_step_scaled",
    "custom_step_concatenated_uneven",
    "custom_sum_objective_uneven",
    "custom_root_objective_uneven",
    "custom_contrastive_loss_uneven",
    "custom_largest_metric_uneven",
    "custom_root_metric_uneven",
    "custom_logs_uneven",
    "endpoint_fewer_samples_than_replicas",
    "added_sum_uneven",
    "added_weights_in_known_sizes",
    "kept_in_attributes_uneven",
    "position_embedding",
    "stateful_rnn",
)


@functools.cache
def on_one_replica(name):
    """Return the outcome of stock Keras."""
    return harness.train(CASES[name], run_eagerly=name not in IN_A_GRAPH)
