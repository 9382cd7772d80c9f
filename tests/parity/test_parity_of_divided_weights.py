"""Weights divided over the replicas: the model that one replica gives."""

import harness
import kdist
import model_cases
import pytest
from cases import CASES, on_one_replica
from kdist.spmd import partition

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_graph_optimizer", "small")]

# Kinds of models, and steps that use weights in other ways: not data or losses. Optimizers are in
# `tests/keras_listing`.
NAMES = (
    *model_cases.CASES,
    "l2",
    "activity_regularizer_bn_uneven",
    "constraint_uneven",
    "added_weights_in_known_sizes",
    "two_heads_weighted",
    "masked_lstm_clipnorm",
    "masked_tagger_uneven",
    "embedding_global_clipnorm_uneven",
    "embedding_of_many_words_uneven",
    "embedding_accumulation_uneven",
    "steps_per_execution_accumulation_clip",
    "validation_data",
    "batch_by_batch",
    "evaluated_first",
    "eagerly_uneven",
    "compiled_outside_the_scope_loss_scale",
    "fitted_inside_the_scope",
    "mixed_float16",
    "custom_step_uneven",
    "custom_step_clipped_and_accumulated",
    "custom_step_batch_norm",
    "custom_step_sum_uneven",
    "custom_step_of_many_parts_uneven",
    "custom_step_twice",
    "custom_step_scaled_and_clipped_uneven",
    "custom_step_sample_by_sample_uneven",
    "custom_step_clipped_by_hand_uneven",
    "custom_step_accumulated_by_hand_uneven",
    "custom_constant_loss",
    "kept_in_attributes_uneven",
    "position_embedding_clipped_uneven",
    "stateful_rnn",
    "recurrent_dropout_uneven",
    "attention_dropout_uneven",
)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Gather few weights for a stage: the models of the cases are small."""
    monkeypatch.setattr(partition, "WEIGHT_BYTES", 2000)


@pytest.mark.parametrize("name", NAMES)
def test_three_replicas_give_what_one_gives(name):
    strategy = kdist.MirroredStrategy(replicas=3, shard_weights=True)
    harness.assert_same(CASES[name], on_one_replica(name), harness.train(CASES[name], strategy))
