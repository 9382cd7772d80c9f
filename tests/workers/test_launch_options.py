"""What `kdist launch` refuses, and how it divides a machine."""

import importlib.util
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.cli.launch import launch, separate_program_arguments
from kdist.cli.options import make_options_class
from kdist.errors import UserError
from kdist.processes.device_assignment import assign_devices, visible_gpus
from kdist.workers import launcher
from kdist.workers.launch_options import (
    LaunchOptions,
    WorkerSettings,
    wait_limits_in,
    worker_settings,
)
from kdist.workers.tf_config import worker_environment


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers has to be from 1 to 1024, received 0"),
        ({"workers": 10**20}, "workers has to be from 1 to 1024"),
        ({"max_restarts": -1}, "max_restarts has to be at least 0"),
        ({"grace": -1.0}, "grace has to be from 0 to 999999, received -1"),
        ({"grace": float("nan")}, "grace has to be from 0"),
        ({"log_dir": ""}, "log_dir is an empty path: leave it out"),
        ({"log_dir": "a\0b"}, "without null bytes"),
        ({"ray": True, "log_dir": "logs"}, "log_dir and grace have no effect with ray"),
        ({"ray": True, "grace": 5.0}, "log_dir and grace have no effect with ray"),
        ({"ray": True, "elastic": True}, "ray and elastic without max_restarts"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        LaunchOptions(**options)


@given(
    workers=st.integers(1, 12),
    gpus_each=st.integers(0, 4),
    cores=st.lists(st.integers(0, 200), min_size=1, max_size=40, unique=True),
)
def test_every_gpu_and_core_goes_to_one_worker(workers, gpus_each, cores):
    gpus = [str(index) for index in range(workers * gpus_each)]
    shares = assign_devices(workers=workers, gpus=gpus, cores=cores)
    assert len(shares) == workers
    assert [gpu for share in shares for gpu in share.gpus or ()] == gpus
    if len(cores) < workers:
        assert all(share.cores == tuple(cores) for share in shares)
    else:
        assert [core for share in shares for core in share.cores] == cores
        sizes = [len(share.cores) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_gpus_that_cannot_be_divided_are_refused():
    with pytest.raises(UserError, match="3 workers cannot share 4 GPUs evenly"):
        assign_devices(workers=3, gpus=["0", "1", "2", "3"], cores=[0])


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("", []), ("-1", []), ("0,2", ["0", "2"]), ("1,-1,2", ["1"]), (" GPU-a , GPU-b", 2)],
)
def test_hidden_gpus_are_not_counted(visible, gpus):
    found = visible_gpus({"CUDA_VISIBLE_DEVICES": visible})
    assert found == gpus or (gpus == 2 and found == ["GPU-a", "GPU-b"])


def test_gpus_are_counted_without_nvidias_tools(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus({}, dev=tmp_path) == ["0", "1"]


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo 'GPU 0: A100'; echo '  MIG 1g.5gb'; echo 'GPU 1: A100'", ["0", "1"]),
        ("exit 9", []),
    ],
)
def test_gpus_are_those_that_nvidia_smi_lists(script, gpus, tmp_path, monkeypatch):
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus({}, dev=tmp_path) == gpus


def test_a_worker_knows_its_place():
    addresses = ["127.0.0.1:5000", "127.0.0.1:5001"]
    variables = worker_environment(addresses, rank=1, restarts=2)
    assert json.loads(variables.pop("TF_CONFIG")) == {
        "cluster": {"worker": addresses},
        "task": {"type": "worker", "index": 1},
    }
    assert variables == {
        "KDIST_RANK": "1",
        "KDIST_WORLD_SIZE": "2",
        "KDIST_RESTART_COUNT": "2",
    }


def test_free_ports_are_below_those_of_connections():
    ports = launcher.free_ports(20)
    assert len({*ports}) == 20
    assert all(20_000 <= port < 32_768 for port in ports)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("launch a.py --workers 3", "launch -- a.py --workers 3"),
        ("launch --workers 2 a.py --port 3", "launch --workers 2 -- a.py --port 3"),
        ("launch --workers=2 --elastic a.py", "launch --workers=2 --elastic -- a.py"),
        ("launch -m kdist train --workers 2", "launch -- -m kdist train --workers 2"),
        ("launch --workers 2 -- a.py", "launch --workers 2 -- a.py"),
        ("launch --help", "launch --help"),
        ("launch -h", "launch -h"),
        ("launch", "launch"),
        ("train --workers 2 a.py", "train --workers 2 a.py"),
        ("", ""),
    ],
)
def test_the_options_of_the_program_are_its_own(arguments, kept):
    assert separate_program_arguments(arguments.split()) == kept.split()


def test_ray_has_to_be_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"module ray of .* pip install 'kdist\[ray\]'"):
        launch(__file__, workers="2", options=make_options_class(LaunchOptions)(ray=True))


def test_settings_come_from_the_program_then_the_environment_then_defaults():
    environment = {"KDIST_HANG_SECONDS": "60.0", "KDIST_START_TIMEOUT_SECONDS": "30.0"}
    assert wait_limits_in({"HOME": "/", **environment}) == environment
    assert worker_settings(environment, start_timeout_seconds=5) == WorkerSettings(
        hang_seconds=60, start_timeout_seconds=5
    )
    assert worker_settings({}, hang_seconds=None) == WorkerSettings()


@pytest.mark.parametrize(
    ("environment", "given", "message"),
    [
        ({"KDIST_HANG_SECONDS": "soon"}, {}, "KDIST_HANG_SECONDS='soon': expected seconds"),
        (
            {"KDIST_HANG_SECONDS": "nan"},
            {},
            "expected seconds, from 0 to 999999",
        ),
        ({}, {"heartbeat_seconds": 0}, "heartbeat_seconds has to be from 1 to 999999, received 0"),
        ({}, {"hang_seconds": "60"}, "hang_seconds has to be a number, received '60'"),
        ({}, {"hang_seconds": -1}, "hang_seconds has to be from 0 to"),
        ({}, {"hang_seconds": float("inf")}, "hang_seconds has to be from 0 to"),
        ({}, {"heartbeat_seconds": 0.5}, "heartbeat_seconds has to be from 1 to"),
        ({}, {"start_timeout_seconds": 0}, "start_timeout_seconds has to be from 1 to"),
    ],
)
def test_settings_that_cannot_be_are_refused(environment, given, message):
    with pytest.raises(UserError, match=message):
        worker_settings(environment, **given)
