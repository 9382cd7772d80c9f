"""The command line: options, errors in a line, exit codes."""

import contextlib
import dataclasses
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import kdist.cli
import pydantic  # noqa: F401 - where it is imported, cyclopts has it check values
import pytest
from annotated_types import Ge, Lt
from cyclopts import App, Parameter
from kdist.callbacks.stop_at_non_finite import NonFinite
from kdist.cli import one_line
from kdist.cli.options import given_options, make_options_class, read_settings
from kdist.errors import TrainingError, UserError
from kdist.signals import ENDING_SIGNALS
from kdist.training.config import TrainConfig
from report_folders import throughput_rows, write_run, write_sweep

ROOT = Path(__file__).parents[2]
HEAVY = ("tensorflow", "keras", "wandb", "keras_tuner")


def run(*arguments, **options):
    command = [sys.executable, "-m", "kdist", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


# In one process, as each that is started takes longer than all of them.
COMMANDS = """
import contextlib, io, json, sys
from kdist.cli import main
ends = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kdist", *arguments]
    code = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(
        io.StringIO()
    ) as errors:
        try:
            main()
        except SystemExit as end:
            code = end.code
    imported = [name for name in %r if name in sys.modules]
    ends.append((code, imported, errors.getvalue()))
print(json.dumps(ends))
"""


def ends_of(*commands, heavy=HEAVY):
    """Return the exit codes, heavy imports and errors of commands that one process runs."""
    command = [sys.executable, "-c", COMMANDS % (heavy,), json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def test_help_imports_nothing_heavy():
    commands = ["--help"], ["train", "--help"], ["sweep", "scaling", "--help"]
    assert ends_of(*commands, heavy=(*HEAVY, "numpy")) == [[0, [], ""]] * 3


MISTAKES = [
    (["--width", "0"], "width has to be from 1 to 200, received 0"),
    (["--depth", "12"], "depth has to be 6n + 4"),
    (["--lr-rule", "cubic"], 'Invalid value "cubic" for --lr-rule. Choose from: "linear"'),
    (["--widht", "2"], "Unknown option: --widht. Did you mean --width?"),
    (["--width", "many"], "Invalid value for --width: expected an integer, received 'many'"),
    (["--epochs", "1.5"], "Invalid value for --epochs: expected an integer, received '1.5'"),
    (["--dataset", "sample", "--data-dir", "/data"], "which comes with kdist"),
    (["--data-dir", "/no/such/folder"], "/no/such/folder"),
    (["--dataset", "cifar10", "--data-dir", "/no"], "'/no' has no data_batch_1"),
    (["--dataset", "sample", "--subset", "20000"], "20000"),
    (["--dataset", "sample", "--run-dir", sys.executable], "cannot write"),
    (["--recipe", "slow"], "recipe has to be one of"),
    (["--config", "/no/such.toml"], "cannot read the settings in /no/such.toml"),
    (["--precision", "int8"], 'Choose from: "float32"'),
    (["--track", "wandb,nosuch"], "unknown tracker nosuch: known are wandb, tensorboard"),
    (["--epochs"], "parameter --epochs requires an argument"),
    (["--no-such"], "Unknown option: --no-such"),
    (["m.py:build", "extra"], "kdist train does not take the argument extra: kdist train --help"),
    (["--resume", "/no/such/run"], "; pass the folder that kdist train has printed"),
    (["--preemption-signal", "SIGUSR1"], "SIGUSR1 has no effect if checkpoint_every=None"),
]


def test_a_mistake_is_one_line_and_exit_2_before_tensorflow():
    ends = ends_of(*(["train", *arguments] for arguments, _ in MISTAKES))
    for (code, imported, stderr), (arguments, words) in zip(ends, MISTAKES, strict=True):
        assert (code, imported) == (2, []), arguments
        assert stderr.startswith("kdist: error: ")
        assert stderr.count("\n") == 1
        assert words in stderr


def test_a_data_set_without_network_is_one_line_that_says_how_to_get_it(tmp_path, monkeypatch):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and listens not
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("KERAS_HOME", str(tmp_path))
        ((code, _, stderr),) = ends_of(["train", "--dataset", "cifar10"])
    assert code == 2
    assert stderr.count("\n") == 1
    assert "kdist: error: CIFAR-10 was not found and could not be downloaded (URL fetch" in stderr
    assert "cifar-10-python.tar.gz on another machine, unpack the file, and pass its" in stderr


def test_devices_lists_what_a_strategy_would_use(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kdist", "devices", "--replicas", "2"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert not end.value.code
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["CPU:0", "CPU:1"]


@pytest.mark.slow
def test_train_from_the_command_line(tmp_path):
    arguments = "--dataset sample --subset 64 --depth 10 --width 1 --epochs 1 --replicas 2"
    folder = tmp_path / "run"
    arguments += " --track wandb,tensorboard --track-batches 1"
    done = run("train", *arguments.split(), "--run-dir", str(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = re.sub(" +", " ", done.stdout)
    assert " replicas 2\n" in shown
    assert " global batch 64 (32 per replica)\n" in shown
    assert len(re.findall("^Epoch ", shown, re.M)) == shown.count("Epoch 1/1: accuracy ") == 1
    assert shown.count("cumulative training time") == 1
    assert "\x1b" not in shown
    assert done.stderr == ""
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
        diverged = signal = None

    monkeypatch.setattr("kdist.training.run.train", lambda config, **_: seen.append(config) or Done)

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


def test_trackers_are_named_between_commas_in_any_order(trained, tmp_path):
    both = trained("--track", "tensorboard,wandb", "--track-batches", "3")
    assert both == trained("--track", "wandb,tensorboard", "--track-batches", "3")
    assert both.trackers == ("wandb", "tensorboard")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(both.to_dict()))
    assert trained("--config", str(path)) == both
    assert trained("--log-dir", "logs").trackers == ("tensorboard",)


def test_without_options_the_labs_settings(trained):
    assert trained() == TrainConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extended(TrainConfig):
    """Additions.

    Attributes:
        mixup: Strength of MixUp.
    """

    mixup: Annotated[float, Ge(0), Lt(2)] = 0.1


def test_a_new_setting_is_one_field(capsys, tmp_path):
    """It is an option with its help, can be given in a file, is checked, documented and private."""
    app = App(result_action="return_value")
    options = make_options_class(Extended)

    @app.default
    def command(*, settings: Annotated[options, Parameter(name="*")] = options()):  # noqa: B008
        return given_options(settings)

    app(["--help"])
    shown = capsys.readouterr().out
    assert "--mixup FLOAT" in shown
    assert "Strength of MixUp. [default: 0.1]" in shown
    assert "Additions" in shown
    assert "--width INT" in shown
    assert app(["--mixup", "0.1", "--width", "3"]) == {"mixup": 0.1, "width": 3}
    path = tmp_path / "mine.toml"
    path.write_text("mixup = 1\n")
    config = Extended.from_dict(read_settings(None, str(path), options()))
    assert config.to_dict()["mixup"] == 1
    assert "mixup" not in config.shareable_settings()
    with pytest.raises(UserError, match="mixup has to be at least 0 and below 2, received 2"):
        Extended(mixup=2)
    page = runpy.run_path(str(ROOT / "docs" / "settings_page.py"))["page"]([Extended])
    assert "| `mixup` | Strength of MixUp. | number at least 0 and below 2 | `0.1` |" in page


def test_the_page_of_settings_is_current():
    module = runpy.run_path(str(ROOT / "docs" / "settings_page.py"))
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == module["page"](), "run python docs/settings_page.py"


def test_the_version_is_the_packages(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["kdist", "--version"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert not end.value.code
    assert capsys.readouterr().out.strip() == kdist.__version__


class Result:
    """Of a run that ended before its time."""

    def __init__(self, *, diverged=None, signal=None):
        self.diverged = diverged
        self.signal = signal
        self.run_dir = "runs/1"


def end_of(monkeypatch, capsys, run):
    """Exit code and standard error of a `kdist train` whose run is the function."""
    monkeypatch.setattr("kdist.training.run.train", run)
    monkeypatch.setattr("sys.argv", ["kdist", "train", "--base-lr", "3", "--warmup-epochs", "2"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_that_a_run_has_heeded_is_its_exit_code(monkeypatch, capsys, number):
    result = Result(signal=signal.Signals(number))
    assert end_of(monkeypatch, capsys, lambda config, **_: result) == (128 + number, "")


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_outside_of_training_is_a_line(monkeypatch, capsys, number):
    name = signal.Signals(number).name

    def interrupted(*_, **__):
        os.kill(os.getpid(), number)

    def swallowed(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        raise ImportError("numpy was interrupted")

    for run in (interrupted, swallowed):
        end = end_of(monkeypatch, capsys, run)
        assert end == (128 + number, f"kdist: interrupted by {name}\n")


def test_an_unexpected_error_has_its_trace(monkeypatch, capsys):
    def fail(*_, **__):
        raise ImportError("numpy is missing")

    with pytest.raises(ImportError):
        end_of(monkeypatch, capsys, fail)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    code, line = end_of(monkeypatch, capsys, fail)
    assert code == 2
    assert line.startswith("kdist: error: Keras's backend is jax, but kdist trains with TensorFlow")


def test_an_output_that_nobody_reads_is_left_silently():
    command = [sys.executable, "-m", "kdist", "train", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)


def test_failed_training_is_a_line_and_exit_1(monkeypatch, capsys):
    def fail(*_, **__):
        raise TrainingError("out of memory: lower --width")

    diverged = NonFinite(epoch=3, step=7)
    assert end_of(monkeypatch, capsys, fail) == (1, "kdist: error: out of memory: lower --width\n")

    assert end_of(monkeypatch, capsys, lambda config, **_: Result(diverged=diverged)) == (
        1,
        "kdist: error: loss was nan in epoch 3, step 7: lower --base-lr, which is 3, or raise"
        " --warmup-epochs, which is 2; no model is saved in runs/1\n",
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n b\tc", "a b c"),
        ("a \x1b[31m \udcff \u202e", r"a \x1b[31m \udcff \u202e"),
        ("zwölf …", "zwölf …"),
        ("ab" * 1000, "ab" * 250 + " … " + "ab" * 250),
    ],
)
def test_a_message_is_one_printable_line(text, line):
    assert one_line(text) == line


def test_a_sweep_and_a_run_on_the_command_line(tmp_path, monkeypatch, capsys):
    sweep = write_sweep(tmp_path / "s", "throughput", throughput_rows())
    runs = [write_run(tmp_path / name, width=at) for at, name in enumerate("ab", start=1)]
    output = tmp_path / "mine.html"
    given = ["kdist", "report", str(sweep), *map(str, runs)]
    monkeypatch.setattr("sys.argv", [*given, "--output", str(output)])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"Report: {output}")
    page = output.read_text()
    for words in ("1 sweep, 2 runs", "Throughput: s", "Milliseconds per step"):
        assert words in page
