"""`kdist train` as the agent of a W&B sweep runs it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from kdist.cli import make_app
from kdist.training.config import TrainConfig
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

EXAMPLE = Path(__file__).parents[2] / "examples" / "wandb_sweep.yaml"


@pytest.fixture
def trained(monkeypatch):
    """A function from the parameters that an agent has got to the settings of the example's run."""
    seen = []

    def train(config, **_):
        seen.append(config)
        return SimpleNamespace(diverged=None, signal=None)

    monkeypatch.setattr("kdist.training.run.train", train)

    def run(parameters):
        passed = {name: {"value": value} for name, value in parameters.items()}
        env, program, *command, args = yaml.safe_load(EXAMPLE.read_text())["command"]
        assert (env, program, args) == ("${env}", "kdist", "${args}")
        line = [*command, *create_sweep_command_args({"args": passed})["args"]]
        make_app()(line, exit_on_error=False, print_error=False)
        return seen.pop()

    return run


@pytest.mark.parametrize("pick", [min, max])
def test_parameters_of_the_example_are_settings_of_a_run_that_is_tracked(trained, pick):
    sweep = yaml.safe_load(EXAMPLE.read_text())
    parameters = {
        name: values.get("value", pick(values.get("values", [values.get(pick.__name__)])))
        for name, values in sweep["parameters"].items()
    }
    assert trained(parameters) == TrainConfig(dataset="sample", track="wandb", **parameters)
    assert sweep["metric"]["name"] == "epoch/val_accuracy"


def test_truth_values_none_and_small_numbers_are_read_as_the_agent_writes_them(trained):
    parameters = {"augment": False, "xla": True, "momentum": None, "wd": 1e-05}
    assert trained(parameters) == TrainConfig(dataset="sample", track="wandb", **parameters)
