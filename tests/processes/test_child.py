"""Child processes: how they start, what they answer, why they ended, and that none is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from kdist.processes.child import Child, Resources, run_child
from kdist.processes.process_exit import explain_exit, is_out_of_memory, says_out_of_memory
from kdist.signals import ENDING_SIGNALS, raise_signals, signal_of

SECONDS = 900  # no test takes as long
HEAD = """
import json, os, signal, subprocess, sys
from kdist.processes.child import read_arguments, send_answer
"""


def python(code):
    return [sys.executable, "-c", f"{HEAD}\n{code}"]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_orders_go_in_and_answers_come_back():
    code = "print('noise', flush=True); send_answer(twice=2 * read_arguments()['number'])"
    code += "; send_answer(more=1)"
    ended = run_child(python(code), arguments={"number": 21}, seconds=SECONDS)
    assert (ended.exit_code, ended.answers, ended.output) == (
        0,
        {"twice": 42, "more": 1},
        "noise\n",
    )
    assert ended.exit.cause == ""


def test_no_answer_is_lost_while_another_is_read():
    code = "[send_answer(**{str(number): number}) for number in range(2000)]"
    with Child(python(code)) as child:
        while child.exit_code is None:
            assert set(child.answers.values()) <= set(range(2000))
        assert list(child.answers.values()) == list(range(2000))


def test_a_program_that_nobody_asked_answers_nobody():
    assert subprocess.run(python("send_answer(a=1)"), capture_output=True).stderr == b""


def test_a_child_has_its_share_of_the_machine():
    core = min(os.sched_getaffinity(0))
    code = "gpus = os.environ['CUDA_VISIBLE_DEVICES']"
    code += "; send_answer(cores=sorted(os.sched_getaffinity(0)), gpus=gpus)"
    resources = Resources(gpus=("3", "5"), cores=(core,))
    with Child(python(code), resources=resources) as child:
        child.wait()
    assert child.answers == {"cores": [core], "gpus": "3,5"}


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="there-is-no-such-program"):
        run_child(["there-is-no-such-program"])


def test_a_child_that_hangs_is_killed():
    with pytest.raises(TimeoutError):
        run_child(python("signal.pause()"), seconds=0.5)


@pytest.mark.parametrize("session", [False, True])
def test_what_a_child_has_started_ends_with_it(session):
    """Also a grandchild of its own making, in a session of its own, in an inner `Child`."""
    code = f"""
from kdist.processes.child import Child
command = [sys.executable, "-c", "import signal; signal.pause()"]
pids = [subprocess.Popen(command, start_new_session={session}).pid, Child(command).pid]
send_answer(pids=pids)
os._exit(3)
"""
    ended = run_child(python(code), seconds=SECONDS)
    assert ended.exit_code == 3
    for pid in ended.answers["pids"]:
        while is_running(pid):  # until the kernel has removed it
            os.sched_yield()


def test_a_child_does_not_outlive_its_parent():
    code = "from kdist.processes.child import Child\n"
    code += f"Child({python('print(os.getpid(), flush=True); signal.pause()')!r}).wait()"
    parent = subprocess.Popen(python(code), stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    parent.kill()
    assert parent.stdout.read() == b""  # returns once the child has closed it too
    parent.wait()
    parent.stdout.close()
    while is_running(pid):
        os.sched_yield()


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_a_signal_while_a_child_starts_ends_it(monkeypatch, number):
    """Between its start and the moment that anybody knows of it."""
    started, popen = [], subprocess.Popen

    def start(*args, **options):
        started.append(popen(*args, **options))
        os.kill(os.getpid(), number)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with raise_signals(), pytest.raises(KeyboardInterrupt) as raised:
        Child(python("signal.pause()"))
    assert signal_of(raised.value) == number
    assert started[0].poll() == -signal.SIGKILL


PYTHON_ERROR = 'Traceback (most recent call last):\n  File "x", line 1\nValueError: no\n'
FROZEN = "[0] kdist: error: no step has ended (see above)\n[0]   File 'x'\n"
OOM = "2026 W x\ntensorflow.errors_impl.ResourceExhaustedError: OOM when allocating [8]\nand more\n"


@pytest.mark.parametrize(
    ("code", "said", "answers", "cause", "line"),
    [
        (0, PYTHON_ERROR, {}, "", ""),
        (1, PYTHON_ERROR, {}, "error", "ValueError: no (exit code 1)"),
        (1, f"out of memory?\n{PYTHON_ERROR}", {}, "error", "ValueError: no (exit code 1)"),
        (2, "width is at least 1\n\nI0000 00:00:17 1 port.cc:153] x\n", {}, "error", "width is at"),
        (2, "noise", {"mistake": "lower it"}, "user", "lower it"),
        (2, "", {"mistake": "m.py: out of memory"}, "memory", "out of memory: m.py: out of"),
        (
            1,
            OOM,
            {},
            "memory",
            "out of memory: tensorflow.errors_impl.ResourceExhaustedError: OOM w",
        ),
        (1, "MemoryError\n", {}, "memory", "out of memory: MemoryError"),
        (1, "out of memory: lower --width", {}, "memory", "out of memory: lower --width"),
        (-9, "", {}, "memory", "most likely out of memory: the process was killed"),
        (137, PYTHON_ERROR, {}, "memory", "most likely out of memory"),
        (-6, "std::bad_alloc\n" + 50 * "more\n", {}, "memory", "out of memory: std::bad_alloc"),
        (-6, "what", {}, "signal", "what (signal SIGABRT)"),
        (-11, "", {}, "signal", "the process printed no error (signal SIGSEGV)"),
        (-15, "", {}, "signal", "the process printed no error (signal SIGTERM)"),
        (-9, FROZEN[4:], {}, "signal", "no step has ended (see above) (signal SIGKILL)"),
        (137, FROZEN, {}, "error", "no step has ended (see above) (exit code 137"),
        (1, "kdist: error: worker 1: OOM\n", {}, "memory", "out of memory: worker 1: OOM"),
    ],
)
def test_why_a_process_ended(code, said, answers, cause, line):
    process_exit = explain_exit(code, said, answers)
    assert (process_exit.cause, process_exit.line[: len(line)]) == (cause, line)


ONEDNN = "Operation received an exception:Status: 1, message: could not create a primitive"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        tf.errors.ResourceExhaustedError(None, None, "failed"),
        tf.errors.InternalError(None, None, "Dst tensor is not initialized."),
        tf.errors.InternalError(None, None, "OOM"),
        tf.errors.AbortedError(None, None, ONEDNN),
    ],
)
def test_memory_that_ran_out(error):
    assert is_out_of_memory(error)
    later = ValueError("no batch")
    later.__cause__ = error
    assert is_out_of_memory(later)


def test_errors_that_are_not_about_memory():
    for other in (
        RuntimeError("can't start new thread"),
        ValueError("out of memory"),  # whoever raises it means something else
        tf.errors.InternalError(None, None, "no room for another kernel"),
        tf.errors.AbortedError(None, None, "Status: 3, message"),
    ):
        assert not is_out_of_memory(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("MemoryError", True),
        ("OSError: [Errno 12] Cannot allocate memory", True),
        ("tensorflow.errors_impl.ResourceExhaustedError: {{function_node f}}", True),
        ("OOM when allocating tensor with shape[8,1024]", True),
        ("failed to allocate 2.00GiB from device", True),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("torch.OutOfMemoryError: CUDA", True),
        ("", False),
        ("no room in the zoom", False),
        ('File "kdist/training/out_of_memory.py", line 34, in explain', False),
    ],
)
def test_what_a_process_says_without_memory(text, expected):
    assert says_out_of_memory(f"before\n{text}\nafter") == expected


def test_numpy_says_that_memory_ran_out():
    with pytest.raises(MemoryError) as error:
        np.empty(2**62, np.uint8)
    assert says_out_of_memory(str(error.value))
