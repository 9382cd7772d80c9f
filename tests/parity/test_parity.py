"""The promise: on any number of replicas, the model that one replica gives."""

import harness
import kdist
import pytest
from cases import CASES, IN_README, on_one_replica

ON_MORE_REPLICAS = {
    3: (
        "bn_fewer_samples_than_replicas",
        "optimizer_LossScaleOptimizer",
        "steps_per_execution_3_uneven",
        "attention_dropout_uneven",
        "dropout_batch_by_batch",
    ),
    4: (
        "accumulation_clipnorm_bn_uneven",
        "batch_smaller_than_replicas",
        "generator_of_sparse_rows",
        "steps_per_execution_2_of_sparse_rows",
        "stateful_rnn",
    ),
    8: (
        "bn_fewer_samples_than_replicas",
        "custom_largest_metric_uneven",
        "dropout_uneven",
    ),
}

COMPILED_BY_XLA = (
    "custom_step_sum_uneven",
    "dropout_accumulation",
    "optimizer_LossScaleOptimizer",
    "stateful_rnn",
)


# The README's table, without cases that are part of others, or of `test_divided_optimizer.py`.
FAST = set(IN_README) - {
    "accumulation",
    "batch_not_divisible",
    "bn",
    "clipvalue",
    "custom_logs_uneven",
    "custom_step_batch_norm",
    "custom_step_clipped_and_accumulated",
    "custom_step_twice",
    "custom_step_uneven",
    "ema_overwrite_uneven",
    "even",
    "generator",
    "l2",
    "loss_sum",
    "optimizer_Adam",
    "optimizer_LossScaleOptimizer",
    "position_embedding",
    "sample_weight_uneven",
    "steps_per_execution_2",
}


def check(name, replicas):
    got = harness.train(CASES[name], kdist.MirroredStrategy(replicas=replicas))
    harness.assert_same(CASES[name], on_one_replica(name), got)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "accumulation_clipnorm_bn_uneven",
        "optimizer_LossScaleOptimizer",
        "steps_per_execution_accumulation_clip",
        "dropout_uneven",
    ],
)
def test_a_strategy_of_one_replica_gives_what_none_gives(name):
    check(name, replicas=1)


@pytest.mark.usefixtures("without_graph_optimizer")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CASES]
)
def test_two_replicas_give_what_one_gives(name):
    check(name, replicas=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replicas"),
    [(name, replicas) for replicas, names in ON_MORE_REPLICAS.items() for name in names],
)
def test_more_replicas_give_what_one_gives(name, replicas, request):
    """The first of each number with TensorFlow's graph optimizer, as all of one replica."""
    if name != ON_MORE_REPLICAS[replicas][0]:
        request.getfixturevalue("without_graph_optimizer")
    check(name, replicas)


@pytest.mark.slow
@pytest.mark.usefixtures("without_graph_optimizer")
@pytest.mark.parametrize("name", COMPILED_BY_XLA)
def test_two_replicas_compiled_by_xla_give_what_one_compiled_gives(name):
    """Not what one gives without XLA, whose results differ in `custom_step_sum_uneven`.

    A sample: `python -m benchmarks.parity --all --jit` compiles every case.
    """
    case, strategy = CASES[name], kdist.MirroredStrategy(replicas=2)
    one, two = (harness.train(case, on, jit_compile=True) for on in (None, strategy))
    harness.assert_same(case, one, two)
