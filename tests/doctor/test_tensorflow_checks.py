"""What TensorFlow's answers mean on machines that are not there."""

import pytest
from kdist.doctor.tensorflow_checks import (
    build_info,
    check_all_reduce,
    check_cuda_packages,
    check_imports,
    check_tensorflow_gpus,
    check_tf_config,
    judge_all_reduce,
    judge_cuda,
    judge_gpus,
)
from kdist.errors import UserError

CU_INIT = "E0000 00:00:1.2 3 cuda_platform.cc:51] failed call to cuInit: INTERNAL\nother\n"
TWO = ["H100", "H100"]
# Products, how many the driver lists, CUDA_VISIBLE_DEVICES; what is found.
GPUS = {
    "all": (TWO, 2, None, "good", "2: H100"),
    "all, and the driver's number is unknown": (TWO, 0, None, "good", "2: H100"),
    "hidden": ([], 2, "-1", "absent", "0, as CUDA_VISIBLE_DEVICES='-1'"),
    "one of two hidden": (["H100"], 2, "1", "good", "1, as"),
    "one of two that are shown": (["H100"], 2, "GPU-1a,GPU-2b", "broken", "1 of 2"),
    "a number that no GPU has": ([], 2, "2,0", "absent", "0, as CUDA_VISIBLE_DEVICES='2,0'"),
    "none that are shown": ([], 2, "0,1", "broken", "none of 2: failed call to cuInit: INTERNAL"),
    "none": ([], 2, None, "broken", "none of 2: failed call to cuInit: INTERNAL"),
    "one of two": (["H100"], 2, None, "broken", "1 of 2"),
}


@pytest.mark.parametrize("name", GPUS)
def test_gpus_in_tensorflow(name, monkeypatch):
    seen, listed, hides, state, text = GPUS[name]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hides is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hides)
    found = judge_gpus(seen, listed, is_cuda_build=True, said=CU_INIT)
    assert found.state == state
    assert text in found.text


def test_a_build_without_cuda(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = judge_gpus([], 2, is_cuda_build=False, said="")
    assert (found.state, "built without CUDA" in found.text) == ("broken", True)
    assert found.remedy.startswith("pip uninstall tensorflow tensorflow-cpu")


def test_packages_of_cuda():
    good = {"nvidia-cudnn-cu12": "", "nvidia-nccl-cu12": ""}
    missing = good | {"nvidia-nccl-cu12": "nvidia-nccl-cu12 is not installed"}
    old = good | {"nvidia-cudnn-cu12": "nvidia-cudnn-cu12 9.1, but tensorflow needs >=9.3"}
    assert judge_cuda("12.5", good, found=True).state == "good"
    assert judge_cuda("12.5", missing, found=True).state == "good"  # the system has it
    assert judge_cuda("12.5", missing, found=False).state == "broken"
    found = judge_cuda("12.5", old, found=True)
    assert (found.state, "cudnn-cu12 9.1, but" in found.text) == ("broken", True)
    assert found.remedy == "in a checkout of kdist, pip install '.[cuda]'"


def test_on_this_machine_without_gpus(monkeypatch):
    monkeypatch.setattr("kdist.doctor.tensorflow_checks.is_there_a_gpu", lambda: False)
    assert check_imports().state == "good"
    assert isinstance(build_info()["is_cuda_build"], bool)
    assert check_tensorflow_gpus() == check_cuda_packages() == []
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    found = check_imports()
    assert (found.state, "KERAS_BACKEND=tensorflow" in found.remedy) == ("broken", True)


@pytest.mark.parametrize(
    ("totals", "seconds", "on_gpus", "state", "text"),
    [
        # Each of 4 devices sends and receives 2 * 3/4 of 64 MB.
        ([10.0, 10.0], 0.01, True, "good", "64 MB over 4 GPUs in 10.0 ms (9.6 GB/s per device"),
        ([10.0, 10.0], 0.1, True, "slow", "1.0 GB/s"),
        ([10.0, 10.0], 0.1, False, "good", "4 logical CPUs in 100.0 ms"),
        ([10.0, 9.0], 0.01, True, "broken", "the sum is 9, expected 10"),
        ([float("nan")], 0.01, True, "broken", "the sum is nan, expected 10"),
    ],
)
def test_all_reduce(totals, seconds, on_gpus, state, text):
    found = judge_all_reduce(4, totals, seconds, on_gpus=on_gpus)
    assert found.state == state
    assert text in found.text


def test_an_all_reduce_over_logical_cpus():
    (found,) = check_all_reduce(3)
    assert found.state == "good"
    assert "64 MB over 3 logical CPUs" in found.text
    assert check_all_reduce(1) == []
    with pytest.raises(UserError, match="received replicas=60"):
        check_all_reduce(60)


def test_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", " ")
    assert check_tf_config() == []
    task = '"task": {"type": "worker", "index": 0}'
    monkeypatch.setenv("TF_CONFIG", f'{{"cluster": {{"worker": ["host1:1", "host2:1"]}}, {task}}}')
    assert check_tf_config()[0].state == "good"
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(UserError, match="TF_CONFIG is not JSON"):
        check_tf_config()
