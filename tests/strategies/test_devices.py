import os
import subprocess
import sys

import kdist
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.strategies import devices
from kdist.strategies.prepare_tensorflow import LOG_LEVEL_VARIABLE


@pytest.mark.parametrize(
    "name", ["/cpu:1", "CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1"]
)
def test_device_names_as_in_tensorflow(name):
    assert kdist.MirroredStrategy([name]).devices == ("CPU:1",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"replicas": 0}, "at least 1"),
        ({"replicas": 2.0}, "an integer"),
        ({"replicas": True}, "an integer"),
        ({"replicas": 99}, "replicas=99, .* CPU can be split into at most [0-9]+ replicas"),
        ({"devices": []}, "empty list"),
        ({"devices": "CPU:0"}, "has to be a list"),
        ({"devices": [0, 1]}, "has to be a list"),
        ({"devices": ["GPU:0"]}, "unknown device GPU:0: available are CPU:0"),
        ({"devices": ["/cpu:0", "CPU:0"]}, "each device only once"),
        ({"devices": ["CPU:0"], "replicas": 1}, "pass only one of these arguments"),
    ],
)
def test_bad_devices_are_refused(arguments, words):
    with pytest.raises(UserError, match=words):
        kdist.MirroredStrategy(**arguments)


@pytest.mark.parametrize(("split", "count"), [({}, 2), ({"a": ["x", "y", "z"]}, 4)])
def test_gpus_are_counted(split, count, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a", "b"])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", split.get)
    assert devices.first_devices(None) == [f"GPU:{index}" for index in range(count)]
    with pytest.raises(UserError, match=f"replicas={count + 1}, but {count} GPUs are visible"):
        kdist.MirroredStrategy(replicas=count + 1)


@pytest.mark.parametrize(("cores", "most"), [(2, 8), (8, 8), (12, 12)])
def test_a_cpu_is_split_into_eight_or_as_many_as_it_has_cores(cores, most, monkeypatch):
    made = []
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda cpu: None)
    monkeypatch.setattr(
        tf.config, "set_logical_device_configuration", lambda cpu, split: made.append(len(split))
    )
    assert devices.first_devices(most) == [f"CPU:{index}" for index in range(most)]
    assert made == [most]
    for replicas in (most + 1, 10**9, 10**40):
        with pytest.raises(UserError, match=f"replicas={replicas}, .* pass replicas={most} or"):
            devices.first_devices(replicas)
    assert made == [most]


def test_a_late_strategy_says_which_line_to_move_up(tmp_path):
    (tmp_path / "tables.py").write_text("import tensorflow as tf\nTABLE = tf.zeros(1)\n")
    script = tmp_path / "late.py"
    script.write_text(
        "import kdist\nimport tables\nstrategy = kdist.MirroredStrategy(replicas=2)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "late.py:3: strategy = kdist.MirroredStrategy(replicas=2)) before" in done.stderr
    assert done.stderr.rstrip().endswith(", and before imports that create tensors")


def test_in_a_notebook_it_says_to_restart_the_kernel(monkeypatch):
    tf.zeros(1)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(99)))
    with pytest.raises(UserError, match="restart the kernel, and run this cell before") as error:
        kdist.MirroredStrategy(replicas=99)
    assert ".py" not in str(error.value)


def test_printing_a_strategy_says_what_it_runs_on():
    assert repr(kdist.MirroredStrategy(replicas=2)) == (
        "<kdist.MirroredStrategy, 2 replicas: CPU:0, CPU:1>"
    )
    assert str(kdist.MirroredStrategy(["CPU:3"])) == "<kdist.MirroredStrategy, 1 replica: CPU:3>"


def test_a_prepared_session_is_quiet_and_splits_the_cpu_once_for_strategies_of_all_sizes():
    code = (
        "import kdist\n"
        "kdist.prepare_tensorflow()\n"
        "import tensorflow as tf\n"
        "print([len(kdist.MirroredStrategy(replicas=n).devices) for n in (8, 1, 2, 4)])\n"
        "print(tf.config.threading.get_intra_op_parallelism_threads(), 'thread')"
    )
    done = subprocess.run(
        [sys.executable, "-i", "-c", code],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != LOG_LEVEL_VARIABLE},
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == "[8, 1, 2, 4]\n1 thread\n"
    assert done.stderr.strip() == ">>>"


@pytest.mark.parametrize(
    ("replicas", "cores", "before", "environment", "expected"),
    [
        (2, 2, 0, {}, 1),
        (4, 2, 0, {}, 1),
        (1, 1, 0, {}, 1),
        (1, 2, 0, {}, 0),
        (2, 4, 0, {}, 0),
        (2, 2, 3, {}, 3),
        (2, 2, 0, {"TF_NUM_INTRAOP_THREADS": "2"}, 0),
    ],
)
def test_an_operation_keeps_to_its_replicas_core(
    replicas, cores, before, environment, expected, monkeypatch
):
    threads = [before]
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(cores)))
    threading = tf.config.threading
    monkeypatch.setattr(threading, "get_intra_op_parallelism_threads", lambda: threads[-1])
    monkeypatch.setattr(threading, "set_intra_op_parallelism_threads", threads.append)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda *split: None)
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda cpu: None)
    devices.first_devices(replicas)
    assert threads[-1] == expected
