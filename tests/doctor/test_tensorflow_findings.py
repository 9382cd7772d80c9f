"""What the facts of TensorFlow mean, on machines that are not there; and the process itself."""

import json
import signal
import sys

import pytest
from fake_machine import H100
from kdist.doctor import tensorflow_findings
from kdist.doctor.finding import Finding
from kdist.doctor.gpus import Driver
from kdist.doctor.tensorflow_facts import (
    DRIVER,
    LIBRARIES,
    STAGES,
    TensorFlowFacts,
    load,
    read_facts,
)
from kdist.doctor.tensorflow_findings import (
    find_all_reduce,
    find_imports,
    find_libraries,
    find_tensorflow_gpus,
    find_tf_config,
)

BUILD = {"cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": True}
WORKS = Finding("GPU driver", "good", "550.54.15")
TWO_GPUS = Driver(WORKS, [H100, H100], present=True)
NO_GPU = Driver(Finding("GPU driver", "absent", ""), [], present=False)
ALL = dict.fromkeys((DRIVER, *LIBRARIES), "found") | {
    "libcudnn.so.9": "9.3.0",
    "libnccl.so.2": "2.27.7",
}


def facts(*, gpus=(), libraries=ALL, build=BUILD, messages="", **others):
    devices = {"gpus": list(gpus), "libraries": libraries, "packages": {}}
    found = {"tensorflow": {"version": "2.21.0", "build": build}, "devices": devices, **others}
    return TensorFlowFacts(facts=found, messages=messages)


def test_imports():
    good = find_imports(facts(keras={"backend": "tensorflow"}))
    assert [one.state for one in good] == ["good", "good"]
    jax = find_imports(facts(keras={"backend": "jax"}))[1]
    assert (jax.state, "KERAS_BACKEND=tensorflow" in jax.remedy) == ("broken", True)
    absent = facts()
    absent.errors["keras"] = "ModuleNotFoundError: No module named 'torch'"
    assert "KERAS_BACKEND=tensorflow" in find_imports(absent)[1].remedy


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'tensorflow'", "pip install tensorflow,"),
        ("the process was ended by SIGILL", "the CPU lacks"),
        ("not done after 180 seconds", "local disk"),
        ("ImportError: numpy.core failed to import", "--force-reinstall"),
    ],
)
def test_tensorflow_that_cannot_be_imported(why, remedy):
    found = TensorFlowFacts(errors={"tensorflow": why})
    (line,) = find_imports(found)
    assert line.state == "broken"
    assert why in line.text
    assert remedy in line.remedy
    rest = [find_tensorflow_gpus(found, TWO_GPUS, {}), find_all_reduce(found)]
    rest += find_libraries(found, TWO_GPUS)
    assert {one.state for one in rest} == {"absent"}


def test_a_crash_shows_what_was_printed_last():
    found = TensorFlowFacts(
        errors={"tensorflow": "the process was ended by SIGABRT"}, messages="a\nb\nc\n\nd\n"
    )
    assert find_imports(found)[0].text == "the process was ended by SIGABRT: b c d"


HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}
NO_CUDNN = ALL | {"libcudnn.so.9": ""}
GPUS = {
    "no GPU": (facts(), NO_GPU, {}, "absent", "none", ""),
    "all": (facts(gpus=["H100", "H100"]), TWO_GPUS, {}, "good", "2: H100", ""),
    "hidden": (facts(), TWO_GPUS, HIDDEN, "absent", "0, as CUDA_VISIBLE_DEVICES='-1'", "unset"),
    "one of two hidden": (
        facts(gpus=["H100"]),
        TWO_GPUS,
        {"CUDA_VISIBLE_DEVICES": "1"},
        "good",
        "1, as",
        "unset",
    ),
    "a build without CUDA": (
        facts(build={"is_cuda_build": False}),
        TWO_GPUS,
        {},
        "broken",
        "without CUDA",
        "pip uninstall tensorflow tensorflow-cpu",
    ),
    "no cuDNN": (
        facts(libraries=NO_CUDNN),
        TWO_GPUS,
        {},
        "broken",
        "libcudnn.so.9 missing",
        "in a checkout of kdist, pip install '.[cuda]'",
    ),
    "shown, but no cuDNN": (
        facts(libraries=NO_CUDNN),
        TWO_GPUS,
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        "broken",
        "libcudnn.so.9 missing",
        "in a checkout of kdist, pip install '.[cuda]'",
    ),
    "one of two shown, but no cuDNN": (
        facts(libraries=NO_CUDNN),
        TWO_GPUS,
        {"CUDA_VISIBLE_DEVICES": "1"},
        "broken",
        "libcudnn.so.9 missing",
        "in a checkout of kdist, pip install '.[cuda]'",
    ),
    "one of two that are shown": (
        facts(gpus=["H100"]),
        TWO_GPUS,
        {"CUDA_VISIBLE_DEVICES": "GPU-1a,GPU-2b"},
        "broken",
        "1 of 2",
        "driver",
    ),
    "a number that no GPU has": (
        facts(),
        TWO_GPUS,
        {"CUDA_VISIBLE_DEVICES": "2,0"},
        "absent",
        "0, as CUDA_VISIBLE_DEVICES='2,0'",
        "unset",
    ),
    "another reason": (
        facts(messages="E0000 00:00:1.2 3 cuda_platform.cc:51] failed call to cuInit: INTERNAL\n"),
        TWO_GPUS,
        {},
        "broken",
        "none: failed call to cuInit: INTERNAL",
        "driver",
    ),
    "one of two": (facts(gpus=["H100"]), TWO_GPUS, {}, "broken", "1 of 2", "driver"),
}


@pytest.mark.parametrize("name", GPUS)
def test_gpus_in_tensorflow(name):
    found, driver, environment, state, text, remedy = GPUS[name]
    line = find_tensorflow_gpus(found, driver, environment)
    assert line.state == state
    assert text in line.text
    assert remedy in line.remedy


def states(found, driver):
    return {one.name: (one.state, one.text) for one in find_libraries(found, driver)}


def test_libraries(monkeypatch):
    monkeypatch.setattr(tensorflow_findings, "_least_version", {"nvidia-cudnn-cu12": "9.3.0"}.get)
    good = states(facts(), TWO_GPUS)
    assert good == {
        "CUDA": ("good", "12.5.1: all 7 libraries found"),
        "cuDNN": ("good", "9.3.0"),
        "NCCL": ("good", "2.27.7"),
    }
    old = states(facts(libraries=ALL | {"libcudnn.so.9": "9.1.0"}), TWO_GPUS)
    assert old["cuDNN"] == ("broken", "9.1.0, but TensorFlow needs 9.3.0 or newer")
    missing = find_libraries(facts(libraries=ALL | {"libcufft.so.11": ""}), TWO_GPUS)[0]
    assert missing.text == "12.5.1: libcufft.so.11 missing (nvidia-cufft-cu12)"
    assert missing.remedy == "in a checkout of kdist, pip install '.[cuda]'"
    driver = find_libraries(facts(libraries=ALL | {DRIVER: ""}), TWO_GPUS)[0]
    assert "NVIDIA_DRIVER_CAPABILITIES" in driver.remedy
    nothing = dict.fromkeys(ALL, "")
    assert {state for state, _ in states(facts(libraries=nothing), NO_GPU).values()} == {"absent"}
    assert {s for s, _ in states(facts(build={}), TWO_GPUS).values()} == {"absent"}


def test_the_least_version_is_what_tensorflow_requires():
    least = tensorflow_findings._least_version("nvidia-cudnn-cu12")
    assert least.startswith("9.")
    assert tensorflow_findings._least_version("nvidia-nothing") == ""


def all_reduce(*, replicas=4, seconds=0.01, total=10.0, device="GPU"):
    return {
        "replicas": replicas,
        "devices": [f"{device}:{index}" for index in range(replicas)],
        "bytes": 64_000_000,
        "seconds": seconds,
        "sums": [total] * 2 * replicas,
        "expected": 10.0,
    }


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [
        # Each of 4 devices sends and receives 2 * 3/4 of 64 MB.
        (all_reduce(), "good", "64 MB over 4 GPUs in 10.0 ms (9.6 GB/s per device"),
        (all_reduce(seconds=0.1), "slow", "1.0 GB/s"),
        (all_reduce(seconds=0.1, device="CPU"), "good", "4 logical CPUs in 100.0 ms"),
        (all_reduce(total=9.0), "broken", "the sum is 9, expected 10"),
        ({"replicas": 1}, "absent", "two devices"),
    ],
)
def test_all_reduce(answer, state, text):
    line = find_all_reduce(facts(all_reduce=answer))
    assert line.state == state
    assert text in line.text


def test_an_all_reduce_that_hangs():
    found = facts()
    found.errors["all_reduce"] = "not done after 120 seconds"
    assert find_all_reduce(found).state == "broken"


def test_an_error_of_kdist_is_its_own_remedy():
    found = facts()
    found.errors["all_reduce"] = "UserError: Keras has another backend: set KERAS_BACKEND"
    line = find_all_reduce(found)
    assert (line.state, line.remedy) == ("broken", "")
    assert line.text == "Keras has another backend: set KERAS_BACKEND"


def test_tf_config():
    given = {"TF_CONFIG": "{"}
    wrong, unknown = facts(), facts()
    wrong.errors["all_reduce"] = "UserError: TF_CONFIG is not JSON (odd): expected text such as"
    (line,) = find_tf_config(wrong, given)
    assert (line.state, line.remedy) == ("broken", "change TF_CONFIG, or unset it")
    assert line.text.startswith("TF_CONFIG is not JSON")
    assert find_all_reduce(wrong) == Finding(
        "all-reduce", "absent", "not timed: see the line of TF_CONFIG"
    )
    assert find_tf_config(facts(all_reduce=all_reduce()), {}) == []
    assert find_tf_config(facts(all_reduce=all_reduce()), given)[0].state == "good"
    unknown.errors["keras"] = "ModuleNotFoundError: No module named 'keras'"
    assert find_tf_config(unknown, given)[0].state == "absent"


def test_no_all_reduce_without_keras():
    absent, other = facts(), facts(keras={"backend": "jax"})
    absent.errors["keras"] = "ModuleNotFoundError: No module named 'torch'"
    for found in (absent, other):
        found.errors["all_reduce"] = "ModuleNotFoundError: No module named 'torch'"
        assert find_all_reduce(found).state == "absent"


def test_loading_libraries(tmp_path):
    assert load("libc.so.6", []) == "found"
    assert load("libthere-is-none.so.1", [tmp_path]) == ""
    folder = tmp_path / "nvidia" / "cufft" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcufft.so.11").write_text("no library")
    assert load("libcufft.so.11", [tmp_path / "nvidia"]) == ""


def program(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(f"import json, os, signal, sys, time\n{text}")
    return [sys.executable, str(path)]


LIMITS = dict.fromkeys(STAGES, 60)
LINE = "print(json.dumps({'stage': '%s', 'facts': {'replicas': int(sys.argv[1])}}), flush=True)\n"


def test_facts_of_all_stages(tmp_path):
    text = "print('a word of sitecustomize.py')\nprint('{}')\n"
    text += "".join(LINE % name for name in STAGES) + "print('a message', file=sys.stderr)\n"
    found = read_facts(3, command=program(tmp_path, text), limits=LIMITS)
    assert found.facts == {name: {"replicas": 3} for name in STAGES}
    assert found.errors == {}


def test_what_came_before_a_crash_stays(tmp_path):
    text = LINE % STAGES[0] + "print('fatal', file=sys.stderr)\nos.kill(os.getpid(), 4)\n"
    found = read_facts(0, command=program(tmp_path, text), limits=LIMITS)
    assert list(found.facts) == [STAGES[0]]
    assert found.errors == {"devices": "the process was ended by SIGILL"}
    assert found.messages == "fatal\n"


def test_a_stage_that_hangs_is_ended(tmp_path):
    text = LINE % STAGES[0] + f"print(os.getpid(), file=open({str(tmp_path / 'pid')!r}, 'w'))\n"
    text += "signal.pause()\n"
    limits = LIMITS | {"devices": 0.5}
    found = read_facts(0, command=program(tmp_path, text), limits=limits)
    assert found.errors == {"devices": "not done after 0.5 seconds"}


def test_a_stage_that_fails_does_not_end_the_others(tmp_path):
    failed = json.dumps({"stage": "devices", "error": "RuntimeError: odd"})
    text = LINE % STAGES[0] + f"print({failed!r}, flush=True)\n" + LINE % "keras"
    found = read_facts(0, command=program(tmp_path, text), limits=LIMITS)
    assert set(found.facts) == {"tensorflow", "keras"}
    assert found.errors["devices"] == "RuntimeError: odd"
    assert found.errors["all_reduce"] == "the process ended with exit code 0"
    assert signal.SIGILL == 4
