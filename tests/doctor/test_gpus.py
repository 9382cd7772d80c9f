import dataclasses
import json

import pynvml
import pytest
from fake_machine import H100, fake_machine, fake_nvml
from kdist.doctor.gpus import _COMMAND, Gpu, find_driver, find_gpus, find_peer_access
from kdist.doctor.machine import run_command

ASKED = "kdist.doctor.gpus"
KERNEL = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
PCI = {
    "sys/bus/pci/devices/0000:00:04.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:00:04.0/class": "0x030200\n",
}
# Files, NVML or how the process ends that asks it; state, text and remedy.
DRIVERS = {
    "no GPU": ({}, None, "absent", "no NVIDIA GPU", ""),
    "a network card of NVIDIA's": (
        {**PCI, "sys/bus/pci/devices/0000:00:04.0/class": "0x020000\n"},
        None,
        "absent",
        "no NVIDIA GPU",
        "",
    ),
    "no driver": (PCI, None, "broken", "no driver is loaded", "install NVIDIA's driver"),
    "a container without GPUs": (
        {"proc/driver/nvidia/version": KERNEL},
        None,
        "broken",
        "this container has no GPU",
        "--gpus all",
    ),
    "no NVML": (
        {"proc/driver/nvidia/version": KERNEL, "dev/nvidia0": "", "dev/nvidiactl": ""},
        None,
        "good",
        "550.54.15; 1 GPU,",
        "",
    ),
    "works": ({}, fake_nvml([H100]), "good", "550.54.15", ""),
    "too old": ({}, fake_nvml([H100], driver="470.82.01"), "broken", "525.60.13", "update"),
    "updated while it ran": (
        PCI,
        fake_nvml(error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        "broken",
        "version mismatch",
        "restart the machine",
    ),
    "a container that lost its devices": (
        PCI,
        fake_nvml(error=pynvml.NVML_ERROR_UNKNOWN),
        "broken",
        "Unknown Error",
        "start the container again",
    ),
    "a new kernel": (
        PCI,
        fake_nvml(error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        "broken",
        "Driver Not Loaded",
        "modprobe",
    ),
    "a GPU that is lost": (
        PCI,
        fake_nvml(error=pynvml.NVML_ERROR_GPU_IS_LOST),
        "broken",
        "GPU is lost",
        "dmesg",
    ),
    "none listed": (PCI, fake_nvml(), "broken", "no GPU is listed", "dmesg"),
    "crashes": (PCI, (-11, ""), "broken", "no answer", "dmesg"),
    "no pynvml": (PCI, (1, "Error: no pynvml\n"), "broken", "no pynvml", "dmesg"),
    "installed, and no GPU": ({}, fake_nvml(), "absent", "finds no GPU", ""),
    "hangs": (PCI, TimeoutError("20 seconds"), "broken", "has not answered", "restart"),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_driver(name, tmp_path):
    files, asked, state, text, remedy = DRIVERS[name]
    ends = {"commands": {ASKED: asked}} if isinstance(asked, tuple | Exception) else {"nvml": asked}
    driver = find_driver(fake_machine(tmp_path, files=files, **ends), cuda="12.5.1")
    assert driver.finding.state == state
    assert text in driver.finding.text
    assert remedy in driver.finding.remedy
    assert bool(driver.finding.remedy) == (state == "broken")
    assert driver.present == (state != "absent")


def gpus_of(tmp_path, gpus, **options):
    """The GPUs of a machine, as they are read."""
    return find_driver(fake_machine(tmp_path, nvml=fake_nvml(gpus, **options))).gpus


def test_gpus_and_their_memory(tmp_path):
    full = dataclasses.replace(H100, index=1, used=40000 * 2**20)
    found = find_gpus(gpus_of(tmp_path, [H100, full]), capabilities=["sm_60", "compute_90"])
    assert [(one.name, one.state) for one in found] == [("GPU 0", "good"), ("GPU 1", "slow")]
    assert found[0].text == (
        "NVIDIA H100 80GB HBM3, 79.1 GiB free of 79.6 GiB, compute capability 9.0"
    )
    assert "other programs" in found[1].text


def test_values_that_a_gpu_does_not_tell(tmp_path):
    gpus = gpus_of(tmp_path, [Gpu(0, "NVIDIA Thor")])
    assert gpus == [Gpu(0, "NVIDIA Thor", peers=[])]
    (finding,) = find_gpus(gpus, capabilities=["sm_60"])
    assert (finding.state, finding.text) == ("good", "NVIDIA Thor")


@pytest.mark.parametrize(
    ("capability", "state"),
    [((3, 7), "broken"), ((6, 0), "good"), ((9, 0), "good"), ((12, 0), "slow")],
)
def test_gpus_that_tensorflow_is_not_compiled_for(capability, state):
    gpus = [dataclasses.replace(H100, capability=capability)]
    (finding,) = find_gpus(gpus, capabilities=["sm_60", "sm_80", "sm_90a", "compute_90"])
    assert finding.state == state


def test_peer_access(tmp_path):
    three = [dataclasses.replace(H100, index=index) for index in range(3)]
    assert find_peer_access(gpus_of(tmp_path, three)).text == "between all 3 GPUs"
    not_supported = {(0, 2): pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED}
    found = find_peer_access(gpus_of(tmp_path, three, peers=not_supported))
    assert found.state == "slow"
    assert found.text == "1 of 3 pairs of GPUs have none, such as 0 and 2 (CNS)"
    unknown = find_peer_access(gpus_of(tmp_path, three[:2], peers={(0, 1): None}))
    assert (unknown.state, unknown.text) == ("absent", "unknown: the driver does not say")
    assert find_peer_access(three[:1]).state == "absent"


def test_nvml_of_this_machine():
    """The names that are called are those of the package."""
    ended = run_command(_COMMAND)
    assert ended.code == 0
    assert json.loads(ended.answer).keys() in ({"driver", "gpus"}, {"error", "name"})
    unknown = set(vars(fake_nvml())) - set(vars(pynvml))
    assert not {name for name in unknown if name.startswith("nvml")}
