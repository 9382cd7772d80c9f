"""Integers, lists and options of sweeps on the command line."""

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le, MaxLen
from cyclopts import Token
from kdist.cli import main, make_app
from kdist.cli.options import parse_integer
from kdist.errors import UserError
from kdist.fields import check_fields
from kdist.study.run_trials import Outcome
from kdist.study.sweep_kinds import ThroughputSweep


def parsed(text):
    return parse_integer(int, [Token(value=text)])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("8", 8), ("-3", -3), ("+1", 1), ("010", 10), ("1_000", 1000), ("30.0", 30), ("7.", 7)],
        *[("0x10", 16), ("-0XF", -15), ("0b11", 3), ("0o17", 15), (" 8 ", 8)],
    ],
)
def test_integers(text, number):
    assert parsed(text) == number


@pytest.mark.parametrize("text", ["1.5", "1e3", "1e999", "nan", "inf", "", ".0", "0x", "8,16", "½"])
def test_what_is_no_integer(text):
    with pytest.raises(ValueError, match="expected an integer, received '"):
        parsed(text)


def arguments_of(app):
    """Every argument of every command, with the name of its command."""
    for name in app:
        if name.startswith("-"):
            continue
        command = app[name]
        yield from arguments_of(command)
        if command.default_command is not None:
            for argument in command.assemble_argument_collection():
                yield name, argument


def test_no_option_is_rounded():
    integers = [
        (name, argument)
        for name, argument in arguments_of(make_app())
        if int in (argument.hint, *typing.get_args(argument.hint))
    ]
    names = {argument.name for _, argument in integers}
    assert {"--epochs", "--rounds", "--max-trials", "--replicas", "--max-restarts"} <= names
    for name, argument in integers:
        assert argument.parameter.converter is parse_integer, f"{name} {argument.name}"


@pytest.fixture
def asked(monkeypatch, capsys):
    """What `kdist sweep` was asked to run, which is not done; or exit code and error."""
    seen = []

    def sweep(experiment, **options):
        seen.append((experiment, options))
        return Outcome(rows=[{"status": "done"}], folder=Path())

    monkeypatch.setattr("kdist.study.sweep_run.sweep", sweep)
    monkeypatch.setattr("kdist.cli.small_commands.report", lambda paths: None)

    def run(line):
        monkeypatch.setattr("sys.argv", ["kdist", "sweep", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return seen[-1] if not end.value.code else (end.value.code, capsys.readouterr().err)

    return run


def test_without_options_the_labs_batches(asked):
    experiment, options = asked("throughput")
    assert isinstance(experiment, ThroughputSweep)
    assert experiment.settings == {
        "train": {},
        "batch_sizes": [8, 16, 32, 64, 128, 256, 512, 700],
        "replicas": [1],
        "epochs": 3,
        "rounds": 3,
    }
    assert options == {"output": None}


def test_options_of_train_are_taken_too(asked, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("width = 2\ndropout = 0.2\nbatch_size = 9\n")
    line = f"throughput --batch-sizes 16,8 --depth 10 --no-augment --config {path} --dropout 0.3"
    experiment, _ = asked(f"{line} --output out")
    assert experiment.batch_sizes == [8, 16]
    assert experiment.train == {"depth": 10, "augment": False, "width": 2, "dropout": 0.3}
    assert asked("throughput --recipe fast")[0].train["schedule"]


def test_accuracy(asked):
    experiment, _ = asked(
        "accuracy --batch-sizes 32,128 --lr-rules linear,sqrt --seeds 3 --target-accuracy 0.8"
        " --time-budget 60 --base-lr 0.1 --base-batch 64 --momentum 0.9"
    )
    assert experiment.train == {
        "momentum": 0.9,
        "target_accuracy": 0.8,
        "patience": 2,
        "epochs": 40,
        "time_budget": 60,
    }
    assert (experiment.base_lr, experiment.base_batch, experiment.seeds) == (0.1, 64, 3)
    assert experiment.lr_rules == ["linear", "sqrt"]


def test_a_files_target_gives_way_to_an_option_only(asked, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("target_accuracy = 0.7\nbase_lr = 0.3\nepochs = 7\n")
    experiment, _ = asked(f"accuracy --config {path} --epochs 9")
    assert (experiment.train["target_accuracy"], experiment.train["epochs"]) == (0.7, 9)
    assert experiment.base_lr == 0.3


def test_scaling(asked, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    experiment, _ = asked("scaling --global-batch 192")
    assert experiment.replicas == [1, 2, 3]  # every GPU
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    experiment, _ = asked("scaling")
    assert (experiment.batch_size, experiment.global_batch) == (64, 256)
    experiment, _ = asked("scaling --replicas 2,1 --global-batch 256 --modes strong --batch-size 8")
    assert (experiment.batch_size, experiment.global_batch, experiment.modes) == (
        8,
        256,
        ["strong"],
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "throughput --batch-sizes 8,a",
            "batch_sizes takes integers separated by commas, such as 8,16,32,64,128,256,512,700,"
            " received '8,a'",
        ),
        ("throughput --replicas 0", "replicas has to be from 1 to 1000000000, received 0"),
        ("throughput --batch-sizes 8,8", "batch_sizes received 8 twice"),
        ("throughput --depht 10", "Unknown option: --depht. Did you mean --depth?"),
        ("throughput --depth 12", "depth has to be 6n + 4"),
        ("throughput --batch-size 8", "Unknown option: --batch-size"),
        ("throughput --epochs 1", "epochs has to be from 2 to"),
        ("throughput --rounds 1.5", "for --rounds: expected an integer, received '1.5'"),
        ("throughput extra", "a model has to be given as FILE.py:FUNCTION, received extra"),
        ("scaling gone.py:build", "there is no file gone.py"),
        (
            "accuracy --lr-rules cubic",
            "lr_rules has to be one of linear, sqrt, none, auto",
        ),
        ("accuracy --seeds 0", "seeds has to be from 1 to 1000, received 0"),
        ("accuracy --workers 2", "Unknown option: --workers"),
        ("scaling --modes strong,odd", "modes has to be one of weak, strong; received odd"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(asked, line, words):
    code, error = asked(line)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1


@dataclasses.dataclass(frozen=True)
class Lists:
    """Lists."""

    replicas: Annotated[Sequence[Annotated[int, Ge(1), Le(9)]], MaxLen(100)] = (2, 3)
    modes: Sequence[Literal["a", "b"]] | None = None

    def __post_init__(self):
        check_fields(self)


def test_lists():
    assert Lists(" 4, 1,02 ", "b, a") == Lists([1, 2, 4], ["b", "a"])
    assert Lists((4, 1)).replicas == [4, 1]
    for text in ("", "1,", "1.5", "1e3", "9" * 20):
        with pytest.raises(UserError, match="takes integers separated by commas, such as 2,3"):
            Lists(text)
    for values in ([], 3, [1] * 101):
        with pytest.raises(UserError, match="takes 1 to 100 values"):
            Lists(values)
    for values in ("-1", [0], [10], [1.5], [True]):
        with pytest.raises(UserError, match="replicas has to be"):
            Lists(values)
    with pytest.raises(UserError, match="modes received a twice"):
        Lists(modes="a,a")
