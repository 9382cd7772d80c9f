"""The driver and its GPUs on machines that are not there: their files, and a stand-in for NVML."""

import types

import pynvml
import pytest
from kdist.doctor.gpu_driver import check_driver, check_gpus, count_gpus, is_there_a_gpu

MIB = 2**20
H100 = {"name": "NVIDIA H100 80GB HBM3", "memory": (81559 * MIB, 512 * MIB), "capability": (9, 0)}
KERNEL = {"proc/driver/nvidia/version": "NVRM version: ... Kernel Module  550.54.15\n"}
PCI = {
    "sys/bus/pci/devices/0000:00:04.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:00:04.0/class": "0x030200\n",
}
NETWORK_CARD = PCI | {"sys/bus/pci/devices/0000:00:04.0/class": "0x020000\n"}
# Files of the machine, and the error or the driver's version; what is found.
DRIVERS = {
    "no GPU": ({}, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "absent", "no NVIDIA GPU", ""),
    "a card for a network": (
        NETWORK_CARD,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "absent",
        "no NVIDIA GPU",
        "",
    ),
    "no driver": (
        PCI,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "broken",
        "no driver is loaded",
        "install NVIDIA's driver",
    ),
    "a container without GPUs": (
        KERNEL,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "broken",
        "this container has no GPU",
        "--gpus all",
    ),
    "no NVML": (
        KERNEL | {"dev/nvidia0": "", "dev/nvidiactl": ""},
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "good",
        "1 found",
        "",
    ),
    "works": (PCI, "550.54.15", "good", "550.54.15", ""),
    "too old": (PCI, "470.82.01", "broken", "525.60.13", "update"),
    "updated while it ran": (
        PCI,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        "broken",
        "version mismatch",
        "restart the machine",
    ),
    "a container that lost its devices": (
        PCI,
        pynvml.NVML_ERROR_UNKNOWN,
        "broken",
        "Unknown Error",
        "start the container again",
    ),
    "a new kernel": (
        PCI,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "broken",
        "Driver Not Loaded",
        "modprobe",
    ),
    "a GPU that is lost": (PCI, pynvml.NVML_ERROR_GPU_IS_LOST, "broken", "GPU is lost", "dmesg"),
}


@pytest.fixture
def nvml(monkeypatch):
    """Lets NVML list GPUs, or raise an error."""

    def use(listed=(), version="550.54.15", error=None):
        def told(value):
            if value is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return value

        def init():
            if error is not None:
                raise pynvml.NVMLError(error)

        def memory(gpu, version=None):
            if version is not None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            total, used = told(gpu.get("memory"))
            return types.SimpleNamespace(total=total, used=used)

        for name, answer in {
            "nvmlInit": init,
            "nvmlSystemGetDriverVersion": lambda: version,
            "nvmlDeviceGetCount": lambda: len(listed),
            "nvmlDeviceGetHandleByIndex": lambda index: listed[index],
            "nvmlDeviceGetName": lambda gpu: gpu["name"],
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetCudaComputeCapability": lambda gpu: told(gpu.get("capability")),
        }.items():
            monkeypatch.setattr(pynvml, name, answer)  # an error, if the package has none

    return use


def machine(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("name", DRIVERS)
def test_driver(name, tmp_path, nvml):
    files, answer, state, text, remedy = DRIVERS[name]
    nvml([H100], **({"version": answer} if isinstance(answer, str) else {"error": answer}))
    root = machine(tmp_path, files)
    found = check_driver("12.5.1", root)
    assert found.state == state
    assert text in found.text
    assert remedy in found.remedy
    assert bool(found.remedy) == (state == "broken")
    assert is_there_a_gpu(root) == (state != "absent")


def test_a_driver_that_lists_no_gpu(tmp_path, nvml):
    nvml([])
    assert check_driver("12.5.1", tmp_path).state == "absent"
    found = check_driver("12.5.1", machine(tmp_path, PCI))
    assert (found.state, found.text) == ("broken", "NVML: no GPU is listed")
    nvml([H100], error=pynvml.NVML_ERROR_UNKNOWN)
    assert count_gpus() == 0


def test_any_cuda_that_is_not_known(tmp_path, nvml):
    nvml([H100], version="470.82.01")
    assert check_driver("", tmp_path).state == check_driver("99.1", tmp_path).state == "good"


def test_gpus_and_their_memory(nvml):
    full = H100 | {"memory": (81559 * MIB, 40000 * MIB)}
    nvml([H100, full, {"name": "NVIDIA Thor"}])
    found = check_gpus(["sm_60", "compute_90"])
    assert [(one.name, one.state) for one in found] == [
        ("GPU 0", "good"),
        ("GPU 1", "slow"),
        ("GPU 2", "good"),
    ]
    assert found[0].text == (
        "NVIDIA H100 80GB HBM3, 79.1 GiB free of 79.6 GiB, compute capability 9.0"
    )
    assert "other programs" in found[1].text
    assert found[2].text == "NVIDIA Thor"  # which tells nothing else


@pytest.mark.parametrize(
    ("capability", "state"),
    [((3, 7), "broken"), ((6, 0), "good"), ((9, 0), "good"), ((12, 0), "slow")],
)
def test_gpus_that_tensorflow_is_not_compiled_for(capability, state, nvml):
    nvml([H100 | {"capability": capability}])
    (finding,) = check_gpus(["sm_60", "sm_80", "sm_90a", "compute_90"])
    assert finding.state == state
    assert check_gpus()[0].state == "good"  # not known what it is compiled for
