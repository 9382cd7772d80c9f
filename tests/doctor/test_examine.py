"""GPUs by a stand-in for NVML."""

import types

import pynvml
import pytest
from kdist.tools.doctor.examine import check_gpus

MIB = 2**20
H100 = {"name": "NVIDIA H100 80GB HBM3", "memory": (81559 * MIB, 512 * MIB)}


@pytest.fixture
def nvml(monkeypatch):
    """Lets NVML list GPUs, or raise an error."""

    def use(*gpus, error=None):
        def init():
            if error is not None:
                raise pynvml.NVMLError(error)

        def memory(gpu):
            if "memory" not in gpu:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            total, used = gpu["memory"]
            return types.SimpleNamespace(total=total, used=used)

        for name, answer in {
            "nvmlInit": init,
            "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlDeviceGetCount": lambda: len(gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
            "nvmlDeviceGetName": lambda gpu: gpu["name"],
            "nvmlDeviceGetMemoryInfo": memory,
        }.items():
            monkeypatch.setattr(pynvml, name, answer)  # an error, if the package has none

    return use


def test_gpus_and_their_memory(nvml):
    nvml(H100, H100 | {"memory": (81559 * MIB, 40000 * MIB)}, {"name": "NVIDIA Thor"})
    driver, *gpus = check_gpus()
    assert (driver.state, driver.text) == ("good", "550.54.15")
    assert [gpu.state for gpu in gpus] == ["good", "slow", "good"]
    assert gpus[0].text == "NVIDIA H100 80GB HBM3, 79.1 GiB free of 79.6 GiB"
    assert "other programs" in gpus[1].remedy
    assert gpus[2].text == "NVIDIA Thor"  # tells nothing else


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "absent", "no NVIDIA driver"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "broken", "version mismatch"),
    ],
)
def test_a_driver_that_does_not_work(error, state, text, nvml):
    nvml(error=error)
    (driver,) = check_gpus()
    assert (driver.state, text in driver.text) == (state, True)
    assert driver.remedy
