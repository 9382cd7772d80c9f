"""What TensorFlow's answers mean on machines that are not there."""

import pytest
from kdist.errors import UserError
from kdist.tools.doctor.tensorflow_checks import (
    check_all_reduce,
    check_import,
    judge_all_reduce,
    judge_gpus,
)


@pytest.mark.parametrize(
    ("found", "visible", "state", "text"),
    [
        (["H100", "H100"], 2, "good", "2: H100"),
        (["H100"], 2, "broken", "1 of 2"),
        ([], 2, "broken", "none of 2"),
        ([], 0, "absent", "none"),
    ],
)
def test_gpus_in_tensorflow(found, visible, state, text):
    finding = judge_gpus(found, visible)
    assert (finding.state, finding.text) == (state, text)


def test_versions_and_another_backend(monkeypatch):
    assert check_import().state == "good"
    monkeypatch.setattr("keras.__version__", "3.99.0")
    assert "tested with Keras 3.14 and 3.15, not with 3.99.0" in check_import().text
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    finding = check_import()
    assert (finding.state, "KERAS_BACKEND=tensorflow" in finding.remedy) == ("broken", True)


@pytest.mark.parametrize(
    ("totals", "seconds", "on_gpus", "state", "text"),
    [
        # Each of 4 devices sends and receives 2 * 3/4 of 64 MB.
        ([10.0, 10.0], 0.01, True, "good", "64 MB over 4 GPUs in 10.0 ms (9.6 GB/s per device"),
        ([10.0, 10.0], 0.1, True, "slow", "1.0 GB/s"),
        ([10.0, 10.0], 0.1, False, "good", "4 logical CPUs in 100.0 ms"),
        ([10.0, 9.0], 0.01, True, "broken", "the sum is 9, expected 10"),
        ([float("nan")], 0.01, True, "broken", "the sum is nan, expected 10"),
        ([10.0, 9.0], 0.01, False, "broken", "the sum is 9, expected 10"),
    ],
)
def test_all_reduce(totals, seconds, on_gpus, state, text):
    found = judge_all_reduce(4, totals, seconds, on_gpus=on_gpus)
    assert found.state == state
    assert text in found.text
    if state == "broken":
        assert ("NCCL" in found.remedy) is on_gpus


def test_an_all_reduce_over_logical_cpus():
    found = check_all_reduce(3)
    assert found.state == "good"
    assert "64 MB over 3 logical CPUs" in found.text
    assert check_all_reduce(1).state == "absent"
    with pytest.raises(UserError, match="received replicas=60"):
        check_all_reduce(60)
