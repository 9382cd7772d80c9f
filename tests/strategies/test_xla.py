import re

import pytest
from kdist.strategies.devices import XLA_FOR_DRAWS_ONLY, describe_xla


@pytest.mark.parametrize(
    ("jit_compile", "wanted", "devices", "words"),
    [
        (True, True, ["CPU:0"], "XLA: on$"),
        (True, True, ["GPU:0", "GPU:1"], "XLA: on$"),
        (True, None, ["GPU:0"], "on, as in Keras on one GPU; --no-xla"),
        (False, False, ["GPU:0", "GPU:1"], "XLA: off, as requested$"),
        (False, None, ["CPU:0", "CPU:1"], "off, .*kernels are faster on CPUs; --xla"),
        (XLA_FOR_DRAWS_ONLY, None, ["GPU:0", "GPU:1"], "off, .*several GPUs, .*; --xla"),
        (XLA_FOR_DRAWS_ONLY, None, ["GPU:0"], "off, .*several GPUs, .*; --xla"),  # with shards
        (False, True, ["CPU:0"], "off, because a layer or"),
        (False, None, ["GPU:0"], "off, because a layer or"),
    ],
)
def test_the_use_of_xla_is_told_with_its_reason(jit_compile, wanted, devices, words):
    assert re.search(words, describe_xla(jit_compile, wanted, devices))
