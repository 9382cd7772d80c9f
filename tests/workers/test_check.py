"""`kdist launch --test`: a pair of workers, and what it says where something is wrong."""

import re
import subprocess
import sys

import pytest
from kdist.workers import check

SECONDS = 300  # no test takes as long


def test_a_pair_of_workers_is_checked():
    command = [sys.executable, "-m", "kdist", "launch", "--workers", "2", "--test"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    found, versions, reduced, trained = done.stdout.splitlines()  # of the chief alone
    assert re.fullmatch(r"\[0\] 2 workers found each other after \S+ s: 2 replicas, .*CPU:0", found)
    assert "tensorflow 2." in versions
    assert re.fullmatch(r"\[0\] all-reduce: \S+ ms for 4 bytes, \S+ ms for 16 MB .*", reduced)
    assert "equal to one replica's" in trained


def test_a_model_that_differs_fails(monkeypatch, capsys):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(check, "_difference_from_one_replica", lambda _: 0.25)
    with pytest.raises(SystemExit) as end:
        check.main()
    assert end.value.code == 1
    assert "weights that are off by 0.2 from those of one replica" in capsys.readouterr().err


def test_weights_that_are_not_numbers_fail(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(check, "_difference_from_one_replica", lambda _: float("nan"))
    with pytest.raises(SystemExit):
        check.main()


def test_a_wrong_sum_fails(monkeypatch, capsys):
    import tensorflow as tf

    class Wrong:
        num_replicas_in_sync = 2
        devices, places = ("CPU:0",), (0,)

        def collectives(self):
            return self

        def sums(self, values):
            return [[tf.fill((1,), 2.0)]]

    with pytest.raises(check.TrainingError, match="sum over 2 replicas is 2, expected 3"):
        check._all_reduce_seconds(Wrong(), 1)
