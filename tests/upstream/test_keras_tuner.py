"""Upstream tests of KerasTuner: what `kdist/_upstream/keras_tuner.py` reads and replaces is there.

Those that show a stock behaviour were last seen with KerasTuner 1.4.8. When one fails, delete the
workaround in `kdist/study` and the upstream test.
"""

import inspect
import json
from pathlib import Path

import keras
import keras_tuner
import pytest
from kdist._upstream.keras_tuner import oracle_file, run_next, trial_file
from keras_tuner.src.engine import base_tuner

SCORE = keras_tuner.Objective("score", "max")


@pytest.mark.parametrize(
    ("caller", "name"),
    [
        (base_tuner.BaseTuner, "_populate_initial_space"),
        (base_tuner.BaseTuner, "_try_run_and_update_trial"),
        (keras_tuner.Tuner, "_build_hypermodel"),
        (keras_tuner.Tuner, "_try_build"),
        (keras_tuner.Tuner, "_build_and_fit_model"),
        (keras_tuner.Oracle, "_save_trial"),
    ],
)
def test_the_methods_that_are_replaced_are_called(caller, name):
    assert f"self.{name}(" in inspect.getsource(caller)


@pytest.mark.parametrize(
    "name",
    [
        "_is_worker",
        "_get_tuner_fname",
        "_get_checkpoint_fname",
        "_get_build_config_fname",
        "_override_compile_args",
        "_run_and_update_trial",
    ],
)
def test_the_names_that_are_read_are_there(name):
    assert callable(getattr(keras_tuner.Tuner, name))


def make_oracle(folder, **options):
    """A stock oracle."""
    oracle = keras_tuner.oracles.RandomSearchOracle(
        objective=SCORE, **{"max_trials": 4, "seed": 1, **options}
    )
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


def test_files_are_where_they_are_looked_for(tmp_path):
    oracle = make_oracle(tmp_path)
    trial = oracle.create_trial("tuner0")
    assert json.loads(oracle_file(oracle).read_text())["start_order"] == [trial.trial_id]
    assert json.loads(trial_file(oracle, trial.trial_id).read_text())["status"] == "RUNNING"


def test_trials_are_handed_out_again_in_order(tmp_path):
    oracle = make_oracle(tmp_path)
    for _ in range(2):
        end(oracle, oracle.create_trial("tuner0"))
    run_next(oracle, ["1", "0"])
    handed_out = [oracle.create_trial(f"tuner{number}").trial_id for number in range(3)]
    assert handed_out == ["1", "0", "2"]


def test_files_are_written_in_place(tmp_path):
    """So a kill may leave half of one."""
    oracle = make_oracle(tmp_path)
    oracle.save()
    before = oracle_file(oracle).stat().st_ino
    oracle.save()
    assert oracle_file(oracle).stat().st_ino == before


def test_a_finished_trial_is_run_again_after_a_kill(tmp_path):
    oracle = make_oracle(tmp_path)
    end(oracle, oracle.create_trial("tuner0"))
    resumed = make_oracle(tmp_path)
    resumed.reload()
    assert resumed.create_trial("tuner0").trial_id == "0"


def test_a_trial_that_only_its_own_file_knows_is_counted_and_never_run(tmp_path):
    oracle = make_oracle(tmp_path)
    oracle.save()
    before = oracle_file(oracle).read_text()
    oracle.create_trial("tuner0")
    oracle_file(oracle).write_text(before)
    resumed = make_oracle(tmp_path)
    resumed.reload()
    assert resumed.create_trial("tuner0").trial_id == "1"


def test_failed_trials_are_among_the_best(tmp_path):
    oracle = make_oracle(tmp_path)
    end(oracle, oracle.create_trial("tuner0"), "FAILED")
    assert [trial.status for trial in oracle.get_best_trials(1)] == ["FAILED"]


def test_too_many_failures_raise_before_the_last_is_written(tmp_path):
    oracle = make_oracle(tmp_path, max_consecutive_failed_trials=1)
    trial = oracle.create_trial("tuner0")
    with pytest.raises(RuntimeError, match="consecutive failures"):
        end(oracle, trial, "FAILED")
    assert json.loads(trial_file(oracle, trial.trial_id).read_text())["status"] == "RUNNING"


def test_seed_0_is_any_seed(tmp_path):
    assert 0 not in {make_oracle(tmp_path, seed=0).seed for _ in range(3)}


def test_hyperband_has_no_argument_for_the_least_epochs():
    names = inspect.signature(keras_tuner.oracles.HyperbandOracle.__init__).parameters
    assert "min_epochs" not in names
    oracle = keras_tuner.oracles.HyperbandOracle(objective=SCORE, max_epochs=9, factor=3)
    assert oracle.min_epochs == 1
    assert oracle._current_bracket == oracle._get_num_brackets() - 1 == 2
    assert oracle._brackets == [{"bracket_num": 2, "rounds": [[], [], []]}]


class Declared(keras_tuner.HyperModel):
    builds = 0

    def declare_hyperparameters(self, hp):
        hp.Float("x", 0.0, 1.0)

    def build(self, hp):
        self.builds += 1
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        return model


def test_a_declared_space_is_learned_by_building_a_model(tmp_path):
    hypermodel = Declared()
    keras_tuner.Tuner(make_oracle(tmp_path), hypermodel, directory=str(tmp_path))
    assert hypermodel.builds > 0


def test_loaded_weights_come_without_the_optimizers(tmp_path):
    hypermodel, oracle = Declared(), make_oracle(tmp_path)
    tuner = keras_tuner.Tuner(oracle, hypermodel, directory=str(tmp_path), project_name="project")
    trial = oracle.create_trial("tuner0")
    model = hypermodel.build(trial.hyperparameters)
    model.optimizer.build(model.trainable_variables)
    model.save_weights(Path(tuner.get_trial_dir(trial.trial_id)) / "checkpoint.weights.h5")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded = tuner.load_model(trial)
    assert not loaded.optimizer.built
