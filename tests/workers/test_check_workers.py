"""`kdist.workers.check_workers`: a pair of workers, and the errors of wrong sums and weights."""

import re
import subprocess
import sys

import pytest
from kdist.errors import TrainingError
from kdist.workers import check_workers

SECONDS = 900  # no test takes as long


def test_a_pair_of_workers_is_checked():
    command = [
        sys.executable,
        "-m",
        "kdist",
        "launch",
        "--workers",
        "2",
        "-m",
        check_workers.__name__,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    found, versions, reduced, trained = done.stdout.splitlines()  # of the chief alone
    assert re.fullmatch(r"\[0\] 2 workers found each other after \S+ s: 2 replicas, .*CPU:0", found)
    assert "tensorflow 2." in versions
    assert re.fullmatch(r"\[0\] all-reduce: \S+ ms for 4 bytes, \S+ ms for 16 MB .*", reduced)
    assert "same weights as one replica" in trained


@pytest.mark.parametrize("difference", [0.25, float("nan")])
def test_a_model_that_differs_fails(monkeypatch, difference):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(check_workers, "_difference_from_one_replica", lambda _: difference)
    with pytest.raises(
        TrainingError, match="weights differ by (0.2|nan) from those of one replica"
    ):
        check_workers.check_workers()


def test_a_wrong_sum_fails():
    import tensorflow as tf

    class Wrong:
        num_replicas_in_sync = 2
        devices, places = ("CPU:0",), (0,)

        def collectives(self):
            return self

        def sum_all(self, values):
            return [[tf.fill((1,), 2.0)]]

    with pytest.raises(TrainingError, match="sum over 2 replicas is 2, expected 3"):
        check_workers._all_reduce_seconds(Wrong(), 1)
