import io
import os
import re
import sys
from pathlib import Path

import kdist.cli.app
import pytest
from kdist.cli.last_resort import one_line, take_debug


@pytest.fixture
def kdist_devices(monkeypatch, tmp_path, capsys):
    """Runs `kdist devices` with options, whose work raises what a test wants."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def run(*options, error):
        def fail(**_):
            raise error

        monkeypatch.setattr("kdist.cli.devices.TrainConfig", fail)
        monkeypatch.setattr("sys.argv", ["kdist", "devices", *options])
        with pytest.raises(SystemExit) as end:
            kdist.cli.main()
        return end.value.code, capsys.readouterr().err

    return run


def test_an_unexpected_error_is_one_line_and_its_trace_is_in_a_file(kdist_devices, tmp_path):
    code, said = kdist_devices("--replicas", "2", error=KeyError("a\nb"))
    assert code == 1
    expected = (
        r"kdist: error: unexpected KeyError: 'a\\nb'; the trace is in (\S+), --debug prints it\n"
    )
    path = Path(re.fullmatch(expected, said)[1])
    assert path.parent == tmp_path
    command, *trace = path.read_text().splitlines()
    assert command == "'kdist' 'devices' '--replicas' '2'"
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == r"KeyError: 'a\nb'"


def test_an_error_under_another_backend_names_the_backend(kdist_devices, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    code, said = kdist_devices(error=ModuleNotFoundError("No module named 'jax'"))
    assert code == 2
    assert said.startswith("kdist: error: Keras's backend is jax, and kdist trains with TensorFlow")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [0, 1])
def test_debug_shows_the_trace(kdist_devices, tmp_path, monkeypatch, place):
    options = ["--replicas=2"]
    options.insert(place, "--debug")
    with pytest.raises(KeyError, match="seen"):
        kdist_devices(*options, error=KeyError("seen"))
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_written_the_trace_is_printed(kdist_devices, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    code, said = kdist_devices(error=RuntimeError("odd"))
    assert code == 1
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("RuntimeError: odd\n\nkdist: error: unexpected RuntimeError: odd\n")


class Broken(io.TextIOWrapper):
    """Standard output that nobody reads any more, or with a full disk below it."""

    def __init__(self, error, target):
        super().__init__(target, write_through=False)
        self.error = error

    def flush(self):
        if self.error is not None:
            raise self.error
        super().flush()


@pytest.mark.parametrize(
    ("error", "words"),
    [(BrokenPipeError(), ""), (OSError(28, "No space"), "unexpected OSError: [Errno 28] No space")],
)
def test_an_output_that_takes_no_more_is_left_silently(monkeypatch, tmp_path, capsys, error, words):
    """Python would flush once more when it ends, print that it cannot, and exit with 120."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["kdist", "--version"])
    with open(tmp_path / "out", "wb") as file:
        monkeypatch.setattr("sys.stdout", Broken(error, file))
        with pytest.raises(SystemExit) as end:
            kdist.cli.main()
        sys.stdout.error = None
        sys.stdout.flush()
        assert os.readlink(f"/proc/self/fd/{file.fileno()}") == os.devnull
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert words in said
    assert bool(said) == bool(words)


def test_debug_is_taken_from_anywhere_but_behind_the_end_of_the_options():
    assert take_debug(["train", "--debug", "--width", "2"]) == (["train", "--width", "2"], True)
    assert take_debug(["train"]) == (["train"], False)
    behind = ["report", "--", "--debug"]
    assert take_debug(behind) == (behind, False)
    assert take_debug(["--debug", *behind]) == (behind, True)
    assert take_debug([]) == ([], False)


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
