"""GPUs by a stand-in for nvidia-smi."""

import pytest
from kdist.tools.doctor import examine
from kdist.tools.doctor.examine import check_gpus


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """Puts a shell script in the place of nvidia-smi."""

    def use(script):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setattr(examine, "_NVIDIA_SMI", [str(tmp_path / "nvidia-smi")])

    return use


def test_gpus_and_their_memory(nvidia_smi):
    nvidia_smi(
        "echo 'NVIDIA H200, 550.54.15, 143000 MiB, 143771 MiB';"
        "echo 'NVIDIA Thor, 550.54.15, [N/A], [N/A]'"
    )
    first, second = check_gpus()
    assert (first.name, first.state) == ("GPU 0", "good")
    assert first.text == "NVIDIA H200, driver 550.54.15, 143000 MiB free of 143771 MiB"
    assert (second.name, second.state) == ("GPU 1", "good")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'Driver/library version mismatch'; exit 18", "version mismatch"),
        ("echo 'No devices were found'", "No devices were found"),
    ],
)
def test_a_driver_that_fails(script, text, nvidia_smi):
    nvidia_smi(script)
    (driver,) = check_gpus()
    assert (driver.state, text in driver.text) == ("broken", True)
    assert driver.remedy


def test_a_driver_that_hangs(monkeypatch, nvidia_smi):
    monkeypatch.setattr(examine, "NVIDIA_SMI_SECONDS", 0.1)
    nvidia_smi("sleep 60")
    (driver,) = check_gpus()
    assert (driver.state, "not ended after 0.1 seconds" in driver.text) == ("broken", True)


def test_a_machine_without_a_driver(monkeypatch):
    monkeypatch.setattr(examine, "_NVIDIA_SMI", ["nvidia-smi-that-is-missing"])
    (driver,) = check_gpus()
    assert (driver.state, "docker run --gpus all" in driver.remedy) == ("absent", True)
