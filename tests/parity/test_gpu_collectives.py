"""The exchanges of several GPUs, on CPUs: TensorFlow's collectives, in any number of strategies."""

import harness
import kdist
import pytest
from cases import CASES
from kdist.distribute import mirrored_strategy
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

NAMES = (
    "accumulation_clipnorm_bn_uneven",
    "custom_step_concatenated_uneven",
    "custom_step_steps_per_execution",
    "embedding_global_clipnorm_uneven",
    "fewer_samples_than_replicas",
    "generator_of_sparse_rows",
    "optimizer_LossScaleOptimizer",
    "steps_per_execution_3_uneven",
)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_replicas_give_what_one_gives(name, replicas, monkeypatch):
    """Of TensorFlow's own strategies the second one of a process fails, and those of 3 steps."""
    monkeypatch.setattr(mirrored_strategy, "device_type", lambda name: "GPU")
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_optimizer=replicas == 3)
    assert isinstance(strategy.collectives().cross_device_ops, CollectiveAllReduce)
    expected = harness.train(CASES[name], run_eagerly=False)
    gaps = harness.differences(expected, harness.train(CASES[name], strategy))
    assert not harness.too_large(CASES[name], gaps), gaps
