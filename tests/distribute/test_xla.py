import re

import pytest
from kdist.distribute.devices import describe_xla


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"], ["GPU:0", "GPU:1"]])
def test_what_is_asked_for_is_on(devices):
    assert describe_xla(True, True, devices, len(devices)) == "XLA: on"


@pytest.mark.parametrize(
    ("devices", "parts", "why"),
    [
        (["CPU:0"], 1, "off, .*kernels are faster; --xla"),
        (["CPU:0", "CPU:1"], 2, "off, .*kernels are faster; --xla"),
        (["GPU:0", "GPU:1"], 2, "off, .*several GPUs, .*; --xla"),
        (["GPU:0"], 2, "off, .*several GPUs, .*; --xla"),
    ],
)
def test_what_is_done_where_nobody_asked_is_told_with_the_reason(devices, parts, why):
    assert re.search(why, describe_xla(False, None, devices, parts))


def test_on_one_gpu_it_is_said_to_be_on():
    assert "on, as in Keras on one GPU; --no-xla" in describe_xla(True, None, ["GPU:0"], 1)


@pytest.mark.parametrize(("wanted", "device"), [(True, "CPU:0"), (None, "GPU:0")])
def test_what_keras_cannot_compile_is_told(wanted, device):
    assert "off, a layer or" in describe_xla(False, wanted, [device], 1)


@pytest.mark.parametrize("devices", [["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_it_can_be_turned_off(devices):
    assert describe_xla(False, False, devices, len(devices)) == "XLA: off, as requested"
