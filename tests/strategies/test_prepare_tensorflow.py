import os
import warnings

import pytest
import tensorflow as tf
from kdist.strategies import devices
from kdist.strategies.prepare_tensorflow import LOG_LEVEL_VARIABLE, drop_messages, quiet_stderr

HEAD = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
INFORMATION = (
    "I0000 00:00:1795392574.095530   22396 port.cc:153] oneDNN custom operations are on.\n"
)
WARNING = "W0000 00:00:1795393111.170309    6910 dataset.cc:997] Input will not be optimized\n"
ERROR = "E0000 00:00:1795393110.321109    6910 nccl.cc:52] unhandled system error\n"
NO_DRIVER = "E0000 00:00:1795393110.3    6910 cuda_platform.cc:52] failed call to cuInit: 303\n"
FOREIGN = "I0000 of nobody\nsome/file.py:1: UserWarning: mine\n"


@pytest.mark.parametrize(
    ("level", "kept"),
    [("1", WARNING + ERROR), ("2", ERROR), ("3", ""), ("9", ""), ("none", INFORMATION)],
)
def test_messages_below_the_users_level_are_dropped_and_nothing_else(level, kept, tmp_path):
    shown = drop_messages(
        HEAD + INFORMATION + FOREIGN + WARNING + ERROR + NO_DRIVER, level, dev=tmp_path
    )
    assert shown.startswith(kept if level == "none" else FOREIGN + kept)
    assert FOREIGN in shown
    assert HEAD not in shown
    assert "cuInit" not in shown


def test_a_gpus_driver_that_fails_is_an_error(tmp_path):
    (tmp_path / "nvidia0").touch()
    assert drop_messages(NO_DRIVER, "2", dev=tmp_path) == NO_DRIVER
    assert drop_messages(NO_DRIVER, "3", dev=tmp_path) == ""


def written(capfd):
    with quiet_stderr():
        os.write(2, (INFORMATION + FOREIGN + ERROR).encode())
    return capfd.readouterr().err


def test_standard_error_of_libraries_is_filtered_and_restored(monkeypatch, capfd):
    monkeypatch.setenv(LOG_LEVEL_VARIABLE, "2")
    assert written(capfd) == FOREIGN + ERROR
    with pytest.raises(ZeroDivisionError), quiet_stderr():
        os.write(2, FOREIGN.encode())
        _ = 1 / 0
    os.write(2, b"after\n")
    assert capfd.readouterr().err == f"{FOREIGN}after\n"


def test_level_0_and_no_level_show_everything(monkeypatch, capfd):
    monkeypatch.setenv(LOG_LEVEL_VARIABLE, "0")
    assert written(capfd) == INFORMATION + FOREIGN + ERROR
    monkeypatch.delenv(LOG_LEVEL_VARIABLE)
    assert written(capfd) == INFORMATION + FOREIGN + ERROR


@pytest.mark.parametrize(
    ("files", "environment", "warns"),
    [
        (("nvidia0", "nvidia1", "nvidiactl"), {}, True),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        (("nvidia0", "nvidia1"), {"CUDA_VISIBLE_DEVICES": "1"}, True),  # its share of a launch
        (("nvidiactl",), {}, False),
    ],
)
def test_gpus_that_tensorflow_does_not_find_are_warned_of(
    files, environment, warns, monkeypatch, tmp_path
):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(devices, "DEV", tmp_path)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["cpu"] * (kind == "CPU"))
    monkeypatch.setattr(devices, "_split_cpu", lambda replicas: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        devices.first_devices(1)
    assert [w for w in caught if "has 2 NVIDIA GPUs, but TensorFlow" in str(w.message)] == (
        caught if warns else []
    )
    assert bool(caught) == warns
