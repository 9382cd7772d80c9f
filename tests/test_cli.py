import dataclasses
import inspect
import json
import subprocess
import sys

import kdist.cli
import pytest
from kdist.config import TrainConfig

HEAVY = ("tensorflow", "keras", "wandb", "keras_tuner", "matplotlib", "scipy")


def run(*arguments, **options):
    command = [sys.executable, "-m", "kdist", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def imported_by(arguments):
    code = (
        "import sys\nsys.argv = ['kdist', *%r]\nfrom kdist.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print('CODE', end.code)\n"
        "print('IMPORTED', *[name for name in %r if name in sys.modules])"
    )
    code %= (list(arguments), HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return lines[-2], lines[-1], done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["sweep", "scaling", "--help"]]
)
def test_help_imports_nothing_heavy(arguments):
    code, imported, _ = imported_by(arguments)
    assert code == "CODE 0"
    assert imported == "IMPORTED"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--width", "0"], "width is at least 1, received 0"),
        (["--depth", "12"], "depth is 6n + 4"),
        (["--lr-rule", "cubic"], "lr_rule is one of"),
        (["--dataset", "sample", "--data-dir", "/data"], "the sample is embedded"),
        (["--data-dir", "/no/such/folder"], "/no/such/folder"),
        (["--dataset", "sample", "--subset", "20000"], "20000"),
        (["--dataset", "sample", "--run-dir", sys.executable], "cannot make the run folder"),
        (["--recipe", "slow"], "recipe is one of"),
        (["--config", "/no/such.toml"], "cannot read the settings in /no/such.toml"),
        (["--precision", "int8"], "precision is one of float32"),
        (["--track", "wandb,mlflow"], "unknown tracker mlflow: there are wandb, tensorboard"),
        (["--config-from-wandb"], "no agent has started this one"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2_before_tensorflow(arguments, words):
    code, imported, stderr = imported_by(["train", *arguments])
    assert code == "CODE 2"
    assert imported == "IMPORTED"
    assert stderr.count("\n") == 1
    assert stderr.startswith("kdist: error: ")
    assert words in stderr


@pytest.mark.parametrize(
    "arguments", [["train", "--width", "many"], ["train", "--no-such"], ["no"]]
)
def test_what_cannot_be_parsed_exits_with_2(arguments):
    code, imported, _ = imported_by(arguments)
    assert code == "CODE 2"
    assert imported == "IMPORTED"


def test_devices_lists_what_a_strategy_would_use(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kdist", "devices", "--replicas", "2"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert not end.value.code
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["CPU:0", "CPU:1"]


def test_train_from_the_command_line(tmp_path):
    arguments = "--dataset sample --subset 64 --depth 10 --width 1 --epochs 1 --replicas 2"
    folder = tmp_path / "run"
    arguments += " --track wandb,tensorboard --track-batches 1"
    done = run("train", *arguments.split(), "--run-dir", str(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line in ("Replicas: 2", "Global batch: 64", "Images/sec: ", "Cumulative training time: "):
        assert line in done.stdout
    assert json.loads((folder / "config.json").read_text())["epochs"] == 1
    assert (folder / "model.keras").exists()
    assert list((folder / "wandb").rglob("*.wandb"))
    assert {path.parent.name for path in (folder / "tensorboard").rglob("events*")} == {
        "tensorboard",
        "train",
        "validation",
        "batches",
    }


@pytest.fixture
def trained(monkeypatch):
    """The configurations that `kdist train` was asked to run, which is not done."""
    seen = []

    class Done:
        interrupted = False

    monkeypatch.setattr("kdist.training.train", lambda config: seen.append(config) or Done)

    def train(*arguments):
        monkeypatch.setattr("sys.argv", ["kdist", "train", *arguments])
        with pytest.raises(SystemExit) as end:
            kdist.cli.main()
        assert not end.value.code
        return seen[-1]

    return train


def test_options_win_over_the_file_and_the_file_over_the_recipe(trained, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("width = 2\nepochs = 5\n")
    recipe = trained("--recipe", "fast")
    config = trained("--recipe", "fast", "--config", str(path), "--epochs", "40")
    assert (config.width, config.epochs) == (2, 40)  # 40 is the default, and was given
    assert (config.schedule, config.momentum) == (recipe.schedule, recipe.momentum)
    assert recipe != trained()


def test_trackers_are_named_one_by_one_or_between_commas(trained, tmp_path):
    one_by_one = trained("--track", "tensorboard", "--track", "wandb", "--profile-batches", "3")
    assert one_by_one == trained("--track", "wandb,tensorboard", "--profile-batches", "3,3")
    assert one_by_one.trackers == ("wandb", "tensorboard")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(one_by_one.to_dict()))
    assert trained("--config", str(path)) == one_by_one
    assert trained("--log-dir", "logs").trackers == ("tensorboard",)


def test_without_options_the_labs_settings(trained):
    assert trained() == TrainConfig()


def test_every_setting_is_an_option():
    options = set(inspect.signature(kdist.cli.train).parameters)
    settings = {field.name for field in dataclasses.fields(TrainConfig)}
    assert options == settings | {"context", "config", "recipe", "config_from_wandb"}


def test_an_interrupted_run_exits_with_130(monkeypatch):
    class Interrupted:
        interrupted = True

    monkeypatch.setattr("kdist.training.train", lambda config: Interrupted)
    monkeypatch.setattr("sys.argv", ["kdist", "train", "--epochs", "1"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert end.value.code == 130
