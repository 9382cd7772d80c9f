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
        (["CPU:0"], "kernels are faster; --xla"),
        (["CPU:0", "CPU:1"], "cannot compile"),
        (["GPU:0", "GPU:1"], "as Keras has it under a strategy; --xla"),
    ],
)
def test_the_reason_is_told_where_it_is_off(devices, why):
    assert why in tell_xla(False, devices)
