"""Versions, and GPUs by a stand-in for NVML."""

import importlib.metadata
import types

import pynvml
import pytest
from kdist.tools.doctor import examine
from kdist.tools.doctor.examine import check_gpus, check_versions, unmet_requirements

MIB = 2**20
H100 = {"name": "NVIDIA H100 80GB HBM3", "memory": (81559 * MIB, 512 * MIB)}
NEEDED = [
    "tensorflow>=2.20,<2.22",
    "keras<4,>=3.14",
    "numpy>=2.4",
    "torch>=2.13; extra == 'peers'",
    "odd>=1; python_version < '3'",
]


@pytest.fixture
def installed(monkeypatch):
    """Lets packages be installed in some versions, and needed by `kdist`."""

    def use(**versions):
        def version(name):
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "requires", lambda _: NEEDED)
        monkeypatch.setattr(importlib.metadata, "version", version)

    return use


def test_requirements_that_are_not_met(installed):
    installed(tensorflow="2.19.0", numpy="2.4.0")
    assert unmet_requirements("kdist") == [
        "tensorflow 2.19.0, but kdist needs <2.22,>=2.20",
        "keras is not installed",
    ]


def test_versions(installed):
    assert [finding.state for finding in check_versions()] == ["good", "good"]
    installed(kdist="0.1.0", tensorflow="2.21.0", keras="3.16.0", numpy="2.4.0")
    assert "tested with Keras 3.14 and 3.15, not with 3.16.0" in check_versions()[1].text
    installed(kdist="0.1.0", tensorflow="2.21.0", keras="3.15.1")
    packages = check_versions()[1]
    assert (packages.state, packages.text) == ("broken", "numpy is not installed")


def test_a_python_that_is_too_old(monkeypatch):
    monkeypatch.setattr(examine.platform, "python_version", lambda: "3.8.1")
    (python,) = check_versions()
    assert (python.state, "3.8.1, but kdist needs" in python.text) == ("broken", True)


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
