import pytest
from fake_machine import fake_machine, smi
from kdist.doctor.nvidia import find_driver, find_gpus, find_peer_access, parse_gpus, parse_peers

QUERY = "nvidia-smi --query-gpu"
KERNEL = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
PCI = {
    "sys/bus/pci/devices/0000:00:04.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:00:04.0/class": "0x030200\n",
}
DRIVERS = {
    "no GPU": ({}, {}, "absent", "no NVIDIA GPU", ""),
    "a network card of NVIDIA's": (
        {**PCI, "sys/bus/pci/devices/0000:00:04.0/class": "0x020000\n"},
        {},
        "absent",
        "no NVIDIA GPU",
        "",
    ),
    "no driver": (PCI, {}, "broken", "no driver is loaded", "install NVIDIA's driver"),
    "a container without GPUs": (
        {"proc/driver/nvidia/version": KERNEL},
        {},
        "broken",
        "this container has no GPU",
        "--gpus all",
    ),
    "no nvidia-smi": (
        {"proc/driver/nvidia/version": KERNEL, "dev/nvidia0": "", "dev/nvidiactl": ""},
        {},
        "good",
        "550.54.15; 1 GPU,",
        "",
    ),
    "works": ({}, {QUERY: (0, smi())}, "good", "550.54.15", ""),
    "too old": ({}, {QUERY: (0, smi(driver="470.82.01"))}, "broken", "525.60.13", "update"),
    "updated while it ran": (
        PCI,
        {QUERY: (18, "Failed to initialize NVML: Driver/library version mismatch\n")},
        "broken",
        "version mismatch",
        "restart the machine",
    ),
    "a container that lost its devices": (
        PCI,
        {QUERY: (255, "Failed to initialize NVML: Unknown Error\n")},
        "broken",
        "Unknown Error",
        "start the container again",
    ),
    "a new kernel": (
        PCI,
        {
            QUERY: (
                9,
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            )
        },
        "broken",
        "couldn't communicate",
        "modprobe",
    ),
    "an error that is not known": (PCI, {QUERY: (5, "\nodd\n")}, "broken", "odd", "dmesg"),
    "installed, and no GPU": ({}, {QUERY: (9, "failed\n")}, "absent", "finds no GPU", ""),
    "hangs": (
        PCI,
        {QUERY: TimeoutError("nvidia-smi has not answered in 20 seconds")},
        "broken",
        "20 seconds",
        "restart",
    ),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_driver(name, tmp_path):
    files, commands, state, text, remedy = DRIVERS[name]
    driver = find_driver(fake_machine(tmp_path, files=files, commands=commands), cuda="12.5.1")
    assert driver.finding.state == state
    assert text in driver.finding.text
    assert remedy in driver.finding.remedy
    assert bool(driver.finding.remedy) == (state == "broken")
    assert driver.present == (state != "absent")


def test_gpus_and_their_memory():
    one, other = find_gpus(parse_gpus(smi(used=(512, 40000))), capabilities=["sm_60", "compute_90"])
    assert (one.name, one.state) == ("GPU 0", "good")
    assert one.text == ("NVIDIA H100 80GB HBM3, 79.1 GiB free of 79.6 GiB, compute capability 9.0")
    assert (other.name, other.state) == ("GPU 1", "slow")
    assert "other programs" in other.text


def test_values_that_a_gpu_does_not_tell():
    (gpu,) = parse_gpus("0, NVIDIA Thor, 580.0, [N/A], [N/A], [N/A]\n")
    assert (gpu.total, gpu.used, gpu.capability) == (None, None, "")
    (finding,) = find_gpus([gpu], capabilities=["sm_60"])
    assert (finding.state, finding.text) == ("good", "NVIDIA Thor")
    assert parse_gpus("No devices were found\n") == []


@pytest.mark.parametrize(
    ("capability", "state"), [("3.7", "broken"), ("6.0", "good"), ("9.0", "good"), ("12.0", "slow")]
)
def test_gpus_that_tensorflow_is_not_compiled_for(capability, state):
    gpus = parse_gpus(f"0, A GPU, 550.1, 8000, 0, {capability}\n")
    (finding,) = find_gpus(gpus, capabilities=["sm_60", "sm_80", "sm_90a", "compute_90"])
    assert finding.state == state


TABLE = """ \t\x1b[4mGPU0\tGPU1\tGPU2\t\x1b[0m
 GPU0\tX\tOK\t{}\t
 GPU1\tOK\tX\tOK\t
 GPU2\t{}\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""


@pytest.mark.parametrize(("state", "found"), [("OK", "good"), ("CNS", "slow")])
def test_peer_access(state, found, tmp_path):
    text = TABLE.format(state, state)
    assert parse_peers(text) == {(0, 1): "OK", (0, 2): state, (1, 2): "OK"}
    machine = fake_machine(tmp_path, commands={"nvidia-smi topo -p2p r": (0, text)})
    finding = find_peer_access(machine, parse_gpus(smi(used=(0, 0, 0))))
    assert finding.state == found
    if found == "slow":
        assert finding.text == "1 of 3 pairs of GPUs have none, such as 0 and 2 (CNS)"


def test_peer_access_of_what_does_not_say(tmp_path):
    gpus = parse_gpus(smi())
    assert find_peer_access(fake_machine(tmp_path), gpus[:1]).state == "absent"
    assert find_peer_access(fake_machine(tmp_path), gpus).state == "absent"
    hangs = fake_machine(tmp_path, commands={"nvidia-smi": TimeoutError("20 seconds")})
    assert find_peer_access(hangs, gpus).state == "broken"
