"""Versions, cores, memory, disks, W&B."""

import importlib.metadata
import os
import types

import pytest
from kdist.doctor import machine
from kdist.doctor.machine import (
    check_cores,
    check_disk,
    check_memory,
    check_shared_memory,
    check_versions,
    check_wandb,
    requirements,
    size,
)
from kdist.errors import UserError

GIB = 2**30


def files(root, texts):
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def installed(monkeypatch):
    """Lets packages be installed in some versions, and needed by `kdist`."""

    def use(needed, **versions):
        def version(name):
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "requires", lambda _: needed)
        monkeypatch.setattr(importlib.metadata, "version", version)

    return use


NEEDED = [
    "tensorflow>=2.20,<2.22",
    "keras<4,>=3.14",
    "numpy>=2.4",
    "torch>=2.13; extra == 'peers'",
    "odd>=1; python_version < '3'",
]


def test_what_a_package_needs(installed):
    installed(NEEDED, tensorflow="2.19.0", numpy="2.4.0", torch="2.12.0")
    assert requirements("kdist") == {
        "tensorflow": "tensorflow 2.19.0, but kdist needs <2.22,>=2.20",
        "keras": "keras is not installed",
        "numpy": "",
    }
    assert requirements("kdist", "peers") == {"torch": "torch 2.12.0, but kdist needs >=2.13"}


def test_versions(installed):
    assert [one.state for one in check_versions()] == ["good", "good"]
    installed(NEEDED, kdist="0.1.0", tensorflow="2.21.0", keras="3.16.0", numpy="2.4.0")
    assert "tested with Keras 3.14 and 3.15, not with 3.16.0" in check_versions()[1].text
    installed(NEEDED, kdist="0.1.0", tensorflow="2.21.0", keras="3.15.1")
    assert (check_versions()[1].state, check_versions()[1].text) == (
        "broken",
        "numpy is not installed",
    )


def test_a_python_that_is_too_old(monkeypatch):
    monkeypatch.setattr(machine.platform, "python_version", lambda: "3.8.1")
    (found,) = check_versions()
    assert (found.state, "3.8.1, but kdist needs" in found.text) == ("broken", True)


def quota(cores):
    return {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{int(cores * 1e5)} 100000\n"}


def test_more_threads_than_the_container_may_run(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8, 16)))
    found = check_cores(files(tmp_path, quota(1.5)))
    assert found.state == "slow"
    assert "may use 1.5" in found.text
    assert "taskset --cpu-list 8,9`" in found.remedy
    assert check_cores(files(tmp_path, quota(8))).state == "good"


@pytest.mark.parametrize(
    ("available", "state"), [(8 * GIB, "good"), (GIB, "slow"), (GIB // 4, "broken")]
)
def test_memory(available, state, tmp_path):
    kib = f"MemTotal: {32 * GIB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
    found = check_memory(files(tmp_path, {"proc/meminfo": kib}))
    assert (found.state, found.text) == (state, f"{size(available)} free of 32.0 GiB")


def test_memory_of_a_container(tmp_path):
    texts = {
        "proc/meminfo": f"MemTotal: {32 * 2**20} kB\nMemAvailable: {8 * 2**20} kB\n",
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{GIB}\n",
    }
    found = check_memory(files(tmp_path, texts))
    assert (found.state, "--memory" in found.remedy) == ("slow", True)
    assert found.text == "1.0 GiB free of 2.0 GiB (the container's limit)"
    assert check_memory(tmp_path / "none").state == "absent"


@pytest.fixture
def free(monkeypatch):
    """Sets the bytes that all disks have left."""

    def use(count):
        disk = types.SimpleNamespace(f_bavail=count // 4096, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda _: disk)

    return use


def test_shared_memory(free, tmp_path):
    free(64 * 2**20)
    assert check_shared_memory(tmp_path)[0].state == "slow"
    free(2 * GIB)
    assert check_shared_memory(tmp_path)[0].state == "good"
    assert check_shared_memory(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("count", "state"), [(100 * GIB, "good"), (GIB, "slow"), (GIB // 100, "broken")]
)
def test_disk(count, state, free, tmp_path):
    free(count)
    assert check_disk("run folder", tmp_path, option="--run-dir").state == state


def test_a_folder_that_does_not_exist_yet_is_not_made(tmp_path):
    assert check_disk("run folder", tmp_path / "a" / "b", option="--run-dir").state != "broken"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    found = check_disk("run folder", tmp_path / "file", option="--run-dir")
    assert (found.state, found.remedy) == ("broken", "pass another --run-dir")


def test_wandb(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert (check_wandb().state, check_wandb().text) == ("absent", "WANDB_MODE=offline")
    monkeypatch.setenv("WANDB_MODE", "odd")
    with pytest.raises(UserError, match="WANDB_MODE has to be one of"):
        check_wandb()
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr("kdist.tracking.wandb_account.has_account", lambda: False)
    assert "wandb login" in check_wandb().remedy
    monkeypatch.setattr("kdist.tracking.wandb_account.has_account", lambda: True)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    found = check_wandb()
    assert (found.state, "Connection refused" in found.text) == ("slow", True)
