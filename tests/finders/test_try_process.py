"""The process of a try: how it ends, what that means, and that none is left."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import pytest
from kdist.errors import TrainingError, UserError
from kdist.finders.one_try import LIMITED, Try, TryResult
from kdist.finders.try_process import INSIDE, run_in_process

TRY = Try(model="m.py:build", data="data", batch_size=8, replicas=1, steps=2)


def run_program(text, **options):
    program = [sys.executable, "-c", f"import os, signal, sys\n{text}"]
    return run_in_process(TRY, program=program, **options)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("print('std::bad_alloc', file=sys.stderr); os.abort()", ""),
        (f"print('{LIMITED}\\n  what', file=sys.stderr); os.abort()", "SIGABRT: what"),
        (f"print('{LIMITED}', file=sys.stderr); os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise MemoryError", ""),
    ],
)
def test_a_process_that_dies_of_memory_is_a_try(text, how):
    assert run_program(text) == TryResult(works=False, why="memory", how=how)


def test_a_process_that_dies_of_something_else_is_an_error():
    with pytest.raises(TrainingError, match=r"exit code 3: broken"):
        run_program("print('broken', file=sys.stderr); sys.exit(3)")
    # Nothing says that memory ran out, and there was no limit.
    with pytest.raises(TrainingError, match="SIGSEGV"):
        run_program("os.kill(os.getpid(), signal.SIGSEGV)")
    # What was printed before an error is not about it; all of its traceback is shown.
    deep = "def f(n):\n    return [0][n] if n > 7 else f(n + 1)"
    with pytest.raises(TrainingError) as error:
        run_program(f"print('out of memory?', file=sys.stderr)\n{deep}\nf(0)")
    message = str(error.value)
    assert "exit code 1: Traceback (most recent call last):" in message
    assert message.endswith("IndexError: list index out of range")
    assert "out of memory?" not in message
    answer = json.dumps({"error": "m.py, line 3: KeyError"})
    with pytest.raises(UserError, match=r"m.py, line 3: KeyError"):
        run_program(f"print({answer!r})")


def test_a_process_that_hangs_is_ended():
    with pytest.raises(TrainingError, match=r"has not ended after 0.5 seconds"):
        run_program("signal.pause()", timeout=0.5)


def test_no_process_is_left_after_ctrl_c(tmp_path):
    """The end of a pipe says so: both programs have it open for writing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = f"import signal; end = open({str(pipe)!r}, 'w'); print('up', file=end, flush=True)"
    parent = (
        "import sys; from kdist.finders.one_try import Try; from kdist.finders import try_process"
        f"; try_process.run_in_process(Try(**{dataclasses.asdict(TRY)}),"
        f" program=[sys.executable, '-c', {child + '; signal.pause()'!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.PIPE)
    with open(pipe) as said:
        assert said.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert said.read() == ""
    assert b"KeyboardInterrupt" in process.communicate()[1]


def test_a_try_ends_with_the_process_that_waits_for_it():
    program = [sys.executable, "-m", "kdist.finders.one_try", json.dumps(dataclasses.asdict(TRY))]
    done = subprocess.run([*program, "1"], capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_try_does_not_start_tries(monkeypatch):
    monkeypatch.setenv(INSIDE, "1")
    with pytest.raises(UserError, match="__main__"):
        run_program("")
