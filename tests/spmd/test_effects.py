"""Stateful operations: known ones run on every replica, all others once."""

import pytest
import tensorflow as tf
from kdist.spmd.effects import effects_of
from kdist.spmd.op_types import CALLS, PROCESS_DRAWS, PURE, READS
from tensorflow.python.framework import op_def_registry


def test_the_kinds_of_state_exclude_each_other():
    kinds = [PURE, PROCESS_DRAWS, READS, CALLS]
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    assert all(op_def_registry.get(kind).is_stateful for kind in PROCESS_DRAWS)


@pytest.mark.parametrize(("dropout", "once"), [(0.0, False), (0.5, True)])
def test_cudnn_runs_on_every_replica_unless_it_draws(dropout, once):
    with tf.Graph().as_default():
        x, state = tf.zeros([3, 2, 4]), tf.zeros([1, 2, 4])
        made = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=state,
            input_c=state,
            params=tf.zeros([160]),
            sequence_lengths=[3, 3],
            dropout=dropout,
        )
        assert effects_of(made.output.op, [False] * 5) == (once, set())
