"""Versions, CPU, memory, disks, W&B."""

import importlib.metadata
import json
import os
import stat

import pytest
from fake_machine import fake_machine
from kdist.doctor.finding import Finding, examine
from kdist.doctor.machine import (
    find_cores,
    find_disk,
    find_keras_folder,
    find_memory,
    find_onednn,
    find_temporary_folder,
    judge_disk,
    judge_shared_memory,
    run_command,
    size,
)
from kdist.doctor.software import find_packages, find_python
from kdist.doctor.wandb_access import find_wandb, judge_wandb

GIB = 2**30


def test_a_check_that_fails_is_a_line():
    def fail():
        raise RuntimeError("odd")

    (line,) = examine("something", fail)
    assert (line.name, line.state) == ("something", "broken")
    assert "RuntimeError: odd" in line.text
    assert examine("one", lambda: Finding("one", "good", "")) == [Finding("one", "good", "")]


def test_python():
    assert find_python(">=3.11,<3.14", "3.12.1").state == "good"
    old = find_python(">=3.11,<3.14", "3.10.9")
    assert (old.state, old.text) == ("broken", "3.10.9, but kdist needs >=3.11,<3.14")


REQUIRES = [
    "tensorflow>=2.20,<2.22",
    "keras<4,>=3.14",
    "numpy>=2.4",
    "rich>=15",
    "torch>=2.13; extra == 'peers'",
]


def packages(**versions):
    def version_of(name):
        try:
            return versions[name]
        except KeyError:
            raise importlib.metadata.PackageNotFoundError(name) from None

    return {one.name: one for one in find_packages(REQUIRES, version_of)}


def test_packages_that_are_known():
    found = packages(tensorflow="2.21.0", keras="3.15.1", numpy="2.4.0", rich="15.0")
    assert [one.state for one in found.values()] == ["good"] * 4
    assert found["other packages"].text == "all 2 that kdist needs"


def test_a_version_that_was_not_tested():
    found = packages(tensorflow="2.21.0", keras="3.16.0", numpy="2.4.0", rich="15.0")["Keras"]
    assert found.state == "good"
    assert "tested with Keras 3.14 and 3.15, not with 3.16.0" in found.text


def test_packages_that_are_not():
    found = packages(tensorflow="2.19.0", numpy="2.3.0", rich="15.0")
    assert found["TensorFlow"].state == found["Keras"].state == "broken"
    assert "2.19.0, but kdist needs" in found["TensorFlow"].text
    assert found["TensorFlow"].remedy == "pip install 'tensorflow<2.22,>=2.20'"
    assert found["Keras"].text == "keras is not installed"
    assert found["other packages"].text == "numpy 2.3.0, but kdist needs >=2.4"


CPUS = {
    "fpu sse4_2": ("broken", "AVX"),
    "fpu avx": ("slow", "AVX2"),
    "avx avx2 fma": ("good", "up to avx2"),
    "avx avx2 fma avx512f avx512_vnni": ("good", "up to avx512f"),
}


@pytest.mark.parametrize("flags", CPUS)
def test_instructions(flags, tmp_path):
    state, text = CPUS[flags]
    machine = fake_machine(tmp_path, files={"proc/cpuinfo": f"flags : {flags}\n"})
    found = find_onednn(machine)
    assert found.state == state
    assert text in found.text


def test_onednn_turned_off_and_arm(tmp_path):
    files = {"proc/cpuinfo": "flags : avx avx2 fma\n"}
    for value in ("0", "false", "False"):
        off = {"TF_ENABLE_ONEDNN_OPTS": value}
        found = find_onednn(fake_machine(tmp_path / "a", files=files, environment=off))
        assert (found.state, "unset TF_ENABLE_ONEDNN_OPTS" in found.remedy) == ("slow", True)
        assert found.text.endswith(f"={value}")
    on = {"TF_ENABLE_ONEDNN_OPTS": "true"}
    assert find_onednn(fake_machine(tmp_path / "a", files=files, environment=on)).state == "good"
    arm = {"proc/cpuinfo": "Features : fp asimd\n"}
    assert find_onednn(fake_machine(tmp_path / "b", files=arm)).state == "absent"


def quota(cores):
    return {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{int(cores * 1e5)} 100000\n"}


def test_more_threads_than_the_container_may_run(tmp_path):
    found = find_cores(fake_machine(tmp_path, files=quota(1.5), cores=range(8, 16)))
    assert found.state == "slow"
    assert "may use 1.5" in found.text
    assert "taskset --cpu-list 8,9`" in found.remedy


@pytest.mark.parametrize(
    ("files", "environment"),
    [({}, {}), (quota(4), {}), (quota(2), {"TF_NUM_INTRAOP_THREADS": "2"})],
)
def test_as_many_threads_as_cores(files, environment, tmp_path):
    machine = fake_machine(tmp_path, files=files, environment=environment)
    assert find_cores(machine).state == "good"


def memory_of(available):
    return {
        "proc/meminfo": f"MemTotal: {32 * GIB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
    }


@pytest.mark.parametrize(
    ("available", "state"), [(8 * GIB, "good"), (GIB, "slow"), (GIB // 4, "broken")]
)
def test_memory(available, state, tmp_path):
    found = find_memory(fake_machine(tmp_path, files=memory_of(available)))
    assert found.state == state
    assert f"{size(available)} free of 32.0 GiB (the machine's), no swap" in found.text


def test_memory_of_a_container(tmp_path):
    files = memory_of(8 * GIB) | {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory.current": f"{GIB}\n",
    }
    found = find_memory(fake_machine(tmp_path, files=files))
    assert found.state == "slow"
    assert found.text.startswith("1.0 GiB free of 2.0 GiB (the container's limit)")
    assert "--memory" in found.remedy


def test_shared_memory():
    assert judge_shared_memory(64 * 2**20).state == "slow"
    assert judge_shared_memory(2 * GIB).state == "good"


@pytest.mark.parametrize(
    ("free", "files", "state"),
    [
        (100 * GIB, None, "good"),
        (GIB, 10**6, "slow"),
        (GIB // 100, 10**6, "broken"),
        (100 * GIB, 10, "broken"),
    ],
)
def test_disk(free, files, state, tmp_path):
    found = judge_disk("run folder", tmp_path, free=free, files=files, remedy="remove files")
    assert found.state == state


def test_a_folder_that_does_not_exist_yet_is_not_made(tmp_path):
    assert find_disk("run folder", tmp_path / "a" / "b", option="--run-dir").state != "broken"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    found = find_disk("run folder", tmp_path / "file", option="--run-dir")
    assert (found.state, found.remedy) == ("broken", "pass another --run-dir")


def test_a_temporary_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # what Python has found
    assert find_temporary_folder({}).state != "broken"
    assert find_temporary_folder({"TMPDIR": f"{tmp_path}/"}).state != "broken"
    found = find_temporary_folder({"TMPDIR": "/nonexistent"})
    assert found.state == "broken"
    assert found.text == f"TMPDIR=/nonexistent cannot be written: Python takes {tmp_path} instead"


def test_a_home_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path / ".keras") in find_keras_folder({}).text
    monkeypatch.setattr("os.access", lambda *_: False)
    found = find_keras_folder({})
    assert found.state == "slow"
    assert found.text.startswith(f"/tmp/.keras, as {tmp_path} cannot be written")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file" / "keras"))
    (tmp_path / "file").write_text("")
    found = find_keras_folder({"KERAS_HOME": str(tmp_path / "file" / "keras")})
    assert (found.state, found.remedy[:14]) == ("broken", "set KERAS_HOME")


ANSWERS = {
    "offline by choice": ({"asked": "offline", "mode": "offline"}, "absent", "WANDB_MODE=offline"),
    "no account": ({"asked": "", "mode": "offline"}, "absent", "no account"),
    "no network": ({"asked": "", "mode": "online", "error": "timed out"}, "slow", "timed out"),
    "good": ({"asked": "", "mode": "online", "error": ""}, "good", "can be reached"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_wandb(name, tmp_path):
    facts, state, text = ANSWERS[name]
    answer = json.dumps(facts | {"host": "api.wandb.ai"})
    printed = f"a word of wandb's\n{answer}\nits last word\n"
    found = find_wandb(fake_machine(tmp_path, commands={"wandb": (0, printed)}))
    assert found.state == state == judge_wandb(**facts, host="api.wandb.ai").state
    assert text in found.text


def test_wandb_that_hangs_or_fails(tmp_path):
    hangs = fake_machine(tmp_path, commands={"wandb": TimeoutError("20 seconds")})
    assert find_wandb(hangs).state == "slow"
    error = "kdist.errors.UserError: WANDB_MODE has to be one of online\n"
    found = find_wandb(fake_machine(tmp_path, commands={"wandb": (1, f"Traceback\n{error}")}))
    assert (found.state, found.text) == ("broken", "WANDB_MODE has to be one of online")
    assert found.remedy == ""  # the text has it
    found = find_wandb(fake_machine(tmp_path, commands={"wandb": (1, "ImportError: no wandb\n")}))
    assert (found.text, "--force-reinstall" in found.remedy) == ("no wandb", True)
    found = find_wandb(fake_machine(tmp_path, commands={"wandb": (0, "no answer\n")}))
    assert (found.state, found.text) == ("broken", "no answer")


def test_commands_end_in_time(tmp_path):
    assert run_command(["there-is-no-such-command"]) is None
    ended = run_command(["sh", "-c", "echo out; echo error >&2; exit 3"])
    assert (ended.code, ended.text) == (3, "out\nerror\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(TimeoutError, match=r"has not answered in 0.2 seconds"):
        run_command(["cat", str(pipe)], seconds=0.2)  # nobody writes to it
