"""Upstream tests of KerasTuner: the parts that `kdist/_upstream/keras_tuner.py` replaces.

Tests of a stock behaviour were last seen with KerasTuner 1.4.8. When one fails, delete the
workaround in `kdist/study` and the upstream test.
"""

import inspect
from pathlib import Path

import keras_tuner
import pytest
from kdist._upstream.keras_tuner import RandomSearchOracle

SCORE = keras_tuner.Objective("score", "max")


def test_the_methods_that_are_replaced_are_called():
    source = inspect.getsource(keras_tuner.Oracle)
    assert "self._save_trial(trial)" in source
    assert "self.save()" in source


def make_oracle(folder, kind=keras_tuner.oracles.RandomSearchOracle, **options):
    oracle = kind(objective=SCORE, **{"max_trials": 4, "seed": 1, **options})
    oracle.verbose = 0
    oracle._set_project_dir(str(folder), "project")
    space = keras_tuner.HyperParameters()
    space.Float("x", 0.0, 1.0)
    oracle.update_space(space)
    return oracle


def end(oracle, trial, status="COMPLETED"):
    if status == "COMPLETED":
        oracle.update_trial(trial.trial_id, {"score": 1.0})
    trial.status = status
    oracle.end_trial(trial)


def test_files_are_written_in_place(tmp_path):
    """So that a kill may leave half of a file."""
    oracle = make_oracle(tmp_path)
    oracle.save()
    file = Path(tmp_path, "project", "oracle.json")
    before = file.stat().st_ino
    oracle.save()
    assert file.stat().st_ino == before


def test_an_oracle_without_files_writes_none(tmp_path):
    oracle = make_oracle(tmp_path, RandomSearchOracle)
    end(oracle, oracle.create_trial("tuner0"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_too_many_failures_raise_before_the_last_is_written(tmp_path):
    oracle = make_oracle(tmp_path, max_consecutive_failed_trials=1)
    trial = oracle.create_trial("tuner0")
    with pytest.raises(RuntimeError, match="consecutive failures"):
        end(oracle, trial, "FAILED")


def test_seed_0_is_any_seed(tmp_path):
    assert 0 not in {make_oracle(tmp_path, seed=0).seed for _ in range(3)}
