"""Options of the commands of `kdist`, read from `--help`."""

import functools
import io
import re

from kdist.cli import make_app
from rich.console import Console

app = make_app()

COMMANDS = tuple(name for name in app if not name.startswith("-"))
KINDS = {name: [kind for kind in app[name] if not kind.startswith("-")] for name in COMMANDS}
"""Commands of a command, such as `accuracy` of `sweep`; most have none."""


def split_command(words):
    """The command that words begin with, such as `("sweep", "accuracy")`, and its arguments."""
    command = tuple(words[: 2 if words and KINDS.get(words[0]) and len(words) > 1 else 1])
    return command, words[len(command) :]


@functools.cache
def options_of(command):
    """The options of a command; a sweep takes those of `kdist train` too.

    Args:
        command: Its words, such as `("sweep", "accuracy")`.
    """
    assert command[0] in COMMANDS, command
    assert len(command) == 1 or command[1] in KINDS[command[0]], command
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", _help(command)))
    return found | options_of(("train",)) if command[0] == "sweep" else found


def all_options():
    """The options of all commands."""
    commands = [(name,) for name in COMMANDS] + [
        (name, kind) for name in KINDS for kind in KINDS[name]
    ]
    return set().union(*map(options_of, commands))


def _help(command):
    shown = io.StringIO()
    app([*command, "--help"], console=Console(file=shown, width=250), exit_on_error=False)
    return shown.getvalue()
