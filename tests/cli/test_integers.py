import typing

import pytest
from cyclopts import Token
from kdist.cli import main
from kdist.cli.app import app
from kdist.cli.integers import parse_integer


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


def test_thousands_of_digits():
    with pytest.raises(ValueError, match="^expected an integer, received a long text$"):
        parsed("9" * 5000)


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
        for name, argument in arguments_of(app)
        if int in (argument.hint, *typing.get_args(argument.hint))
    ]
    names = {argument.name for _, argument in integers}
    assert {"--epochs", "--rounds", "--max-trials", "--replicas", "--port"} <= names
    for name, argument in integers:
        assert argument.parameter.converter is parse_integer, f"{name} {argument.name}"


def test_what_was_received_is_said(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kdist", "sweep", "throughput", "--rounds", "1.5"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    words = "Invalid value for --rounds: expected an integer, received '1.5'"
    assert words in capsys.readouterr().err
