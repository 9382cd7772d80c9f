import re

import pytest
from kdist.strategies.devices import DRAWS_ALONE, describe_xla


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"], ["GPU:0", "GPU:1"]])
def test_requested_xla_is_on(devices):
    assert describe_xla(True, True, devices) == "XLA: on"


@pytest.mark.parametrize(
    ("jit_compile", "devices", "why"),
    [
        (False, ["CPU:0"], "off, .*kernels are faster; --xla"),
        (False, ["CPU:0", "CPU:1"], "off, .*kernels are faster; --xla"),
        (DRAWS_ALONE, ["GPU:0", "GPU:1"], "off, .*several GPUs, .*; --xla"),
        (DRAWS_ALONE, ["GPU:0"], "off, .*several GPUs, .*; --xla"),  # with shards
    ],
)
def test_a_default_is_told_with_its_reason(jit_compile, devices, why):
    assert re.search(why, describe_xla(jit_compile, None, devices))


def test_on_one_gpu_it_is_said_to_be_on():
    assert "on, as in Keras on one GPU; --no-xla" in describe_xla(True, None, ["GPU:0"])


@pytest.mark.parametrize(("wanted", "device"), [(True, "CPU:0"), (None, "GPU:0")])
def test_a_model_that_keras_cannot_compile_is_told(wanted, device):
    assert "off, a layer or" in describe_xla(False, wanted, [device])


@pytest.mark.parametrize("devices", [["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_xla_can_be_turned_off(devices):
    assert describe_xla(False, False, devices) == "XLA: off, as requested"
