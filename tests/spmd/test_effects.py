"""What is known of each stateful operation that Keras or TensorFlow's Python can make."""

import re
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from kdist.spmd.effects import effects_of
from kdist.spmd.op_types import PROCESS_DRAWS, PURE, READS
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session

# Of files, queues, iterators, functions in Python, and of the process: they run once.
OUTSIDE = {
    "AddManySparseToTensorsMap",
    "AddSparseToTensorsMap",
    "AnonymousHashTable",
    "AnonymousMutableDenseHashTable",
    "AnonymousMutableHashTable",
    "AnonymousMutableHashTableOfTensors",
    "Barrier",
    "BoostedTreesEnsembleResourceHandleOp",
    "CollectiveAssignGroupV2",
    "CollectiveBcastRecv",
    "CollectiveBcastRecvV2",
    "CollectiveBcastSend",
    "CollectiveBcastSendV2",
    "CollectiveGather",
    "CollectiveInitializeCommunicator",
    "CollectiveReduce",
    "ConsumeMutexLock",
    "DeleteSessionTensor",
    "EagerPyFunc",
    "Empty",
    "FIFOQueueV2",
    "FixedLengthRecordReaderV2",
    "GetSessionHandle",
    "GetSessionTensor",
    "HashTableV2",
    "IdentityReaderV2",
    "LMDBReader",
    "MutableDenseHashTableV2",
    "MutableHashTableOfTensorsV2",
    "MutableHashTableV2",
    "MutexV2",
    "NcclAllReduce",
    "NcclBroadcast",
    "NcclReduce",
    "PaddingFIFOQueueV2",
    "Print",
    "PrintV2",
    "PriorityQueueV2",
    "PyFunc",
    "RandomShuffleQueueV2",
    "RecordInput",
    "ResourceConditionalAccumulator",
    "RestoreSlice",
    "Save",
    "SaveSlices",
    "SparseConditionalAccumulator",
    "StackV2",
    "Stage",
    "StageClear",
    "StagePeek",
    "StageSize",
    "SummaryWriter",
    "TFRecordReaderV2",
    "TakeManySparseFromTensorsMap",
    "TensorArrayV3",
    "TextLineReaderV2",
    "Unstage",
    "VarHandleOp",
    "Variable",
    "VariableV2",
    "WholeFileReaderV2",
}
# Control flow: as what is in it.
CALLS = {"Case", "If", "PartitionedCall", "RemoteCall", "StatefulPartitionedCall", "While"}
_MAKES = re.compile(r"\bgen_\w+\.(\w+)\(|raw_ops\.(\w+)\(")


def stateful_operations():
    """Return the names of registered operations that are stateful and take no resource."""
    found = op_def_pb2.OpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {
        op.name
        for op in found.op
        if op.is_stateful
        and not any(arg.type == types_pb2.DT_RESOURCE or arg.is_ref for arg in op.input_arg)
    }


def made_by_python():
    """Return how the Python of Keras and TensorFlow names the operations that it makes."""
    folders = [Path(keras.__file__).parent / "src", Path(tf.__file__).parent / "python" / "ops"]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    text = "\n".join(p.read_text() for p in files if not p.name.startswith("gen_"))
    return {name for pair in _MAKES.findall(text) for name in pair if name}


def test_each_stateful_operation_is_known():
    made = {name.replace("_", "").lower() for name in made_by_python()}
    reached = {name for name in stateful_operations() if name.lower() in made}
    assert len(reached) > 40
    assert not reached - PURE - PROCESS_DRAWS - READS - CALLS - OUTSIDE


def test_the_kinds_of_state_exclude_each_other():
    kinds = [PURE, PROCESS_DRAWS, READS, CALLS, OUTSIDE]
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    known = stateful_operations()
    assert known >= PROCESS_DRAWS


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
