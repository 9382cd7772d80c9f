"""Draws odd command lines, settings and run folders; each has to end as documented.

`python odd_command_lines.py COUNT SEED` runs them one after the other, up to the import of
TensorFlow or the start of a process, where training would begin. A command line ends with exit
code 0, or with exit code 2 and one line, and has then left no file behind. Prints how they ended.
"""

import collections
import contextlib
import importlib.abc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "docs"))

import hypothesis
from command_options import COMMANDS, KINDS, options_of
from hypothesis import strategies as st
from kdist.cli import main
from kdist.fields import fields_of
from kdist.training.config import TrainConfig

LONGEST_SECONDS = 300
NUMBERS = [
    *["0", "-0", "-1", "1", "2", "64", "65", str(2**63), "9" * 5000, "1.0", "0.5", "1e308", "nan"],
    *["inf", "-inf", "1e999", "0x10", "1_000", "1,000", "\u0663", "\u00bd", " 1", "--1", "1e", "."],
]
TEXTS = [
    *["", " ", "\n", "a\nb", "\x1b[31mred", "\u202e", "\u00e9", "-", "--", "=", "[]", '{"a": 1}'],
    *["%s", "{0}", "$HOME", "*", "\\", "'", '"', "<b>", ",", "1,", "8,8", "8,a", "x" * 300],
    *["wandb", "none,wandb", "sqrt,none", "weak,strong", "\udcff", "\ud800", "null", "auto"],
]
PATHS = [
    *["", ".", "..", "a", "a//b", "new/deep/folder", "~", "x" * 300, "x/" * 3000, "null\0byte"],
    *["\udcff", "new\nline", "/dev/null/x", "/proc/nothing", "file", "file/below", "folder", "run"],
    *["link", "loop", "dangling", "a.html", "a.json", "a.toml", "mine.py:build", "given.json"],
]
VALUES = st.sampled_from([*NUMBERS, *TEXTS, *PATHS]) | st.floats().map(str)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*TEXTS, 10**40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
SETTINGS = sorted(field.name for field in fields_of(TrainConfig))


class Begins(BaseException):
    """Training would begin here."""


class Stopper(importlib.abc.MetaPathFinder):
    """Ends a command line where it imports TensorFlow."""

    def find_spec(self, name, path, target=None):
        if name in ("tensorflow", "keras", "keras_tuner"):
            raise Begins


@st.composite
def command_lines(draw):
    """Draw the arguments of a command."""
    command = draw(st.sampled_from(COMMANDS))
    words = [command, *([draw(st.sampled_from(KINDS[command]))] if KINDS[command] else [])]
    if command == "launch":  # its programs are processes
        words += draw(st.sampled_from([["mine.py"], ["-m", "mine"], ["-m"], []]))
    elif command in ("check", "find", "evaluate", "report"):
        words.append(draw(st.sampled_from(["run", "mine.py:build", *PATHS])))
    names = sorted(options_of(tuple(words[: 2 if KINDS[command] else 1])))
    for option in draw(st.lists(st.sampled_from(names), max_size=3)):
        value = draw(VALUES)
        words += draw(st.sampled_from([[option, value], [f"{option}={value}"], [option]]))
    return words


@st.composite
def damaged_files(draw):
    """Draw a file of settings, and the files of a run with a part of them replaced."""
    settings = st.dictionaries(st.sampled_from(SETTINGS), JSON_VALUES, max_size=3)
    files = {"given.json": json.dumps(draw(settings)).encode()}
    files |= {f"run/{path.name}": path.read_bytes() for path in RUN.iterdir() if path.is_file()}
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=2)):
        content = files[name]
        begin = draw(st.integers(0, len(content)))
        end = draw(st.integers(begin, len(content)))
        new = draw(st.sampled_from([b"", b"\0", b"\xff", b"nan", b"-1", b'"', b","]))
        files[name] = content[:begin] + new + content[end:]
    return files


def contents(folder):
    """Return the sizes of all files and folders, but for those of a search."""
    return {
        str(path.relative_to(folder)): path.is_dir() or path.lstat().st_size
        for path in folder.rglob("*")
    }


def end_of(words, files):
    """Run a command line in a new folder, and return how it ended."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        for path, content in {
            **files,
            "mine.py": b"pass\n",
            "file": b"",
            "folder/file": b"",
        }.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        for link, target in {"link": "folder", "loop": "loop", "dangling": "nowhere"}.items():
            (folder / link).symlink_to(target)
        before = contents(folder)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
        signal.alarm(LONGEST_SECONDS)  # ends this process
        try:
            with (
                mock.patch.object(sys, "argv", ["kdist", *words]),
                mock.patch.object(subprocess.Popen, "__init__", side_effect=Begins),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except Begins:
            return "training begins"
        for stream in (out, err):
            stream.seek(0)
        printed, errors = out.read(), err.read()
        assert code in (0, 2), f"exit code {code}: {errors}"
        assert "Traceback" not in printed + errors
        if code == 2:
            lines = errors.splitlines()
            assert len(lines) == 1, errors
            assert lines[0].startswith("kdist: error: "), errors
            assert lines[0].isprintable(), repr(errors)
            assert 25 <= len(lines[0]) <= 1200, errors
            assert contents(folder) == before, f"left files behind; {errors}"
        return f"exit code {code}"


def run_drawn(count, seed):
    """Draw and run command lines; return how often each command ended in each way."""
    ends = collections.Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(command_lines(), damaged_files())
    def drawn(words, files):
        ends[f"{words[0]}: {end_of(words, files)}"] += 1

    drawn()
    return ends


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "WANDB_MODE": "offline", "https_proxy": "http://127.0.0.1:9"}
        import report_folders

        RUN = Path(home, "run")
        report_folders.write_run(RUN)
        sys.meta_path.insert(0, Stopper())
        found = run_drawn(*map(int, sys.argv[1:]))
    print(json.dumps(found))
