import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
import yaml
from kdist.errors import UserError
from kdist.training.config import TrainConfig, config_of, sweep_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "wandb_sweep.yaml"


def test_parameters_win_over_a_file_and_the_run_is_tracked():
    config = config_of({"width": 2}, {"width": 1, "epochs": 3}, {"track": "tensorboard"})
    assert (config.width, config.epochs, config.trackers) == (2, 3, ("wandb", "tensorboard"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"lr": 0.1},
            "parameter lr is not a setting .*: available are dataset.*base_lr",
        ),
        (
            {"run_dir": "/elsewhere"},
            "run_dir is not a setting of kdist train that a sweep may",
        ),
        ({"track": "csv"}, "track is not a setting"),
        ({"seed": 1}, "seed is a parameter of the sweep and also given on the command line"),
        ({"base_lr": "1e-3"}, "base_lr has to be a number, received '1e-3'"),
    ],
)
def test_parameters_that_will_not_do_are_refused(parameters, words):
    with pytest.raises(UserError, match=words):
        config_of(parameters, {}, {"seed": 2})


# wandb leaves the file of parameters to the garbage collector.
leaves_a_file_open = pytest.mark.filterwarnings(
    r"ignore:(?s).*parameters\.yaml:pytest.PytestUnraisableExceptionWarning",
    r"ignore:unclosed file .*parameters\.yaml:ResourceWarning",
)


@pytest.fixture
def agent(monkeypatch, tmp_path):
    """Begins what an agent would: its environment, and the file of parameters it writes."""

    def start(**parameters):
        path = tmp_path / "parameters.yaml"
        path.write_text(yaml.safe_dump({n: {"value": value} for n, value in parameters.items()}))
        monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(path))
        monkeypatch.setenv("WANDB_DIR", str(tmp_path))

    wandb.teardown()  # which has read the environment
    yield start
    wandb.teardown()


@leaves_a_file_open
def test_an_agents_program_reads_its_parameters_and_keeps_the_run(agent, tmp_path):
    agent(width=2, base_lr=0.125)
    config = sweep_config({}, {"epochs": 3})
    assert (config.width, config.base_lr, config.epochs) == (2, 0.125, 3)
    assert wandb.run is not None
    assert list((tmp_path / "wandb").rglob("*.wandb"))


def test_a_folder_that_wandb_cannot_write_is_refused(monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    monkeypatch.setenv("WANDB_DIR", "/proc/version")
    with pytest.raises(UserError, match="cannot write the files of wandb into /proc/version"):
        sweep_config({}, {})


@leaves_a_file_open
def test_a_parameter_that_is_no_setting_ends_the_run_as_failed(agent, tmp_path):
    agent(widht=2)
    with pytest.raises(UserError, match="widht is not a setting"):
        sweep_config({}, {})
    assert wandb.run is None
    (path,) = (tmp_path / "wandb").glob("offline-run-*")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "failed (exit code 2)" in text


def test_the_example_sweeps_over_settings_by_the_command_that_reads_them():
    sweep = yaml.safe_load(EXAMPLE.read_text())
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert set(sweep["parameters"]) <= fields
    command = sweep["command"]
    assert command[1:4] == ["kdist", "train", "--config-from-wandb"]
    given = dict(zip(command[4::2], command[5::2], strict=True))
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
    for pick in (min, max):
        parameters = {
            name: values.get("value", pick(values.get("values", [values.get(pick.__name__)])))
            for name, values in sweep["parameters"].items()
        }
        assert config_of(parameters, {}, given).trackers == ("wandb",)
    assert sweep["metric"]["name"] == "epoch/val_accuracy"
