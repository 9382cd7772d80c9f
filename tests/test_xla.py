import re

import pytest
from kdist.errors import UserError
from kdist.xla import check_xla, tell_xla


@pytest.mark.parametrize("devices", [["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_where_a_step_can_be_compiled(devices):
    check_xla(devices)
    assert tell_xla(True, devices) == "XLA: on"


def test_logical_cpus_cannot_share_a_compiled_step():
    with pytest.raises(UserError, match=r"jit_compile=True.* 2 logical CPUs.*--xla"):
        check_xla(["CPU:0", "CPU:1"])


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (["CPU:0"], "off, .*kernels are faster; --xla"),
        (["CPU:0", "CPU:1"], "off, .*cannot compile"),
        (["GPU:0"], "on, .*one GPU; --no-xla"),
        (["GPU:0", "GPU:1"], "off, .*several GPUs; --xla"),
    ],
)
def test_what_is_done_where_nobody_asked_is_told_with_the_reason(devices, why):
    assert re.search(why, tell_xla(None, devices))


@pytest.mark.parametrize("devices", [["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_it_can_be_turned_off(devices):
    assert tell_xla(False, devices) == "XLA: off, as was asked for"
