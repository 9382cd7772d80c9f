"""Every command that the pages show exists, with every option that it is given."""

import re
import shlex

import pytest
from command_options import all_options, options_of, split_command
from kdist.cli.launch import separate_program_arguments
from markdown_pages import PAGES, ROOT, blocks, inline_code, page_id

# Programs of others, which the pages call without kdist's options.
FOREIGN = ("kill", "source", "tensorboard", "wandb")

every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


def commands(page):
    """The commands of a page as words, from console blocks and from its prose."""
    text = page.read_text()
    lines = [
        line.removeprefix("$ ")
        for block in blocks(text)
        if block.language == "console"
        for line in block.code.splitlines()
        if line.startswith("$ ")
    ]
    assert all(lines)
    written = [c for c in inline_code(text) if re.match(r"(kdist|make|python|pip install) \S", c)]
    return [shlex.split(line, comments=True) for line in [*lines, *written]]


def options(words):
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def check(words):
    """Fail unless the command exists."""
    while "=" in words[0]:  # variables in front
        words = words[1:]
    program, *rest = words
    if program == "kdist":
        command, arguments = split_command(rest)
        if command == ("launch",):
            arguments, started = split_program(rest)
            if started[:1] == ["-m"]:
                check(["kdist", *started[2:]] if started[1] == "kdist" else ["python", *started])
        if command != ("--help",) and not command[0].startswith("<"):
            unknown = set(options(arguments)) - options_of(command)
            assert not unknown, f"kdist {' '.join(command)} has no {unknown}"
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
    elif program == "python" and rest[0] == "-m":
        path = ROOT.joinpath(*rest[1].split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), rest[1]
        if path.with_suffix(".py").is_file():
            check_script(path.with_suffix(".py"), rest[2:])
    elif program == "python":
        if (ROOT / rest[0]).parent != ROOT:  # else a file of the reader's
            check_script(ROOT / rest[0], rest[1:])
    elif program == "pip":
        extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        wanted = re.match(r"\.\[(\w+)\]", rest[1])
        assert wanted is None or wanted[1] in extras
    else:
        assert program in FOREIGN, f"unknown program {program}"


def split_program(words):
    """The options of `kdist launch`, and the program that it starts."""
    own, _, program = " ".join(separate_program_arguments(words)).partition(" -- ")
    return own.split()[1:], program.split()


def check_script(path, arguments):
    source = path.read_text()
    for option in options(arguments):
        assert f'"{option}"' in source, f"{path.name} has no {option}"


@every_page
def test_commands_exist(page):
    for words in commands(page):
        check(words)


@every_page
def test_options_named_alone_exist(page):
    named = [code.split()[0] for code in inline_code(page.read_text()) if code.startswith("--")]
    if named:
        scripts = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
        assert {n for n in named if f'"{n}"' not in scripts} <= all_options()
