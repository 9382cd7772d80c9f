"""The exchanges of several GPUs, on CPUs: TensorFlow's collectives, in any number of strategies."""

import harness
import kdist
import numpy as np
import pytest
import tensorflow as tf
from cases import CASES, on_one_replica
from kdist.spmd.collectives import Collectives
from kdist.strategies import exact_strategy, mirrored_strategy
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

FAST = (
    "custom_step_concatenated_uneven",
    "fewer_samples_than_replicas",
    "optimizer_LossScaleOptimizer",
)
SLOW = (
    "accumulation_clipnorm_bn_uneven",
    "custom_step_steps_per_execution",
    "embedding_global_clipnorm_uneven",
    "generator_of_sparse_rows",
    "steps_per_execution_3_uneven",
)


@pytest.mark.parametrize("name", [*FAST, *[pytest.param(n, marks=pytest.mark.slow) for n in SLOW]])
def test_three_replicas_give_what_one_gives(name, monkeypatch):
    """With TensorFlow's own strategies, a process's second one fails, and 3 steps per execution."""
    monkeypatch.setattr(mirrored_strategy, "device_type", lambda name: "GPU")
    strategy = kdist.MirroredStrategy(replicas=3, shard_optimizer=name in SLOW)
    assert isinstance(strategy.collectives().cross_device_ops, CollectiveAllReduce)
    summed = []
    sums = Collectives._sum_parts

    def recorded(self, parts):
        if not self._is_collective(parts[0]):
            summed.append(parts[0])
        return sums(self, parts)

    monkeypatch.setattr(Collectives, "_sum_parts", recorded)
    harness.assert_same(CASES[name], on_one_replica(name), harness.train(CASES[name], strategy))
    assert not [part for part in summed if part.dtype.is_floating and part.shape.rank]


def test_texts_and_sparse_rows_stay_in_host_memory(monkeypatch):
    monkeypatch.setattr(exact_strategy, "are_gpus", lambda devices: True)
    case = CASES["generator_of_sparse_rows"]
    got = harness.train(case, kdist.MirroredStrategy(replicas=3))
    harness.assert_same(case, on_one_replica("generator_of_sparse_rows"), got)
    strategy = kdist.MirroredStrategy(["CPU:1", "CPU:2"])
    words = tf.data.Dataset.from_tensor_slices((["a", "b", "c", "d"], np.arange(4))).batch(4)
    for rows, numbers in strategy.experimental_distribute_dataset(words):
        devices = [part.device[-5:] for part in (*rows.values, *numbers.values)]
        assert devices == ["CPU:0"] * 4
        assert [*np.concatenate(rows.values)] == [b"a", b"b", b"c", b"d"]
