import numpy as np
import pytest
import tensorflow as tf
from kdist.performance.out_of_memory import is_out_of_memory, says_out_of_memory

ONEDNN = "Operation received an exception:Status: 1, message: could not create a primitive"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        tf.errors.ResourceExhaustedError(None, None, "failed"),
        tf.errors.InternalError(None, None, "Dst tensor is not initialized."),
        tf.errors.InternalError(None, None, "OOM"),
        tf.errors.AbortedError(None, None, ONEDNN),
    ],
)
def test_memory_that_ran_out(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of memory"),  # whoever raises it means something else
        tf.errors.InternalError(None, None, "no room for another kernel"),
        tf.errors.AbortedError(None, None, "Status: 3, message"),
    ],
)
def test_other_errors(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    "text",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "tensorflow.errors_impl.ResourceExhaustedError: {{function_node f}}",
        "OOM when allocating tensor with shape[8,1024]",
        "failed to allocate 2.00GiB from device",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "torch.OutOfMemoryError: CUDA",
    ],
)
def test_what_a_process_says_without_memory(text):
    assert says_out_of_memory(f"before\n{text}\nafter")


def test_numpy_says_that_memory_ran_out():
    with pytest.raises(MemoryError) as error:
        np.empty(2**62, np.uint8)
    assert says_out_of_memory(str(error.value))


@pytest.mark.parametrize(
    "text",
    ["", "no room in the zoom", 'File "kdist/training/out_of_memory.py", line 34, in explain'],
)
def test_what_other_processes_say(text):
    assert not says_out_of_memory(text)
