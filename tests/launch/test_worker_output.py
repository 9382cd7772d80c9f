"""Which lines of a worker are the error that it ended with."""

import io
import time

import pytest
from kdist.launch import workers
from kdist.launch.workers import Worker, WorkerOutput

HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "/home/me/heartbeat.py", line 3, in <module>\n    fit()\n'
LOG = """E0000 00:00:1795500782.608496   31609 base_collective.cc:252] StartAbort UNAVAILABLE
Additional GRPC error information from remote target /job:worker/replica:0/task:0
:UNKNOWN:Error received from peer  {grpc_status:14}
"""


def output(text, capsys):
    found = WorkerOutput(None, io.BytesIO(text.encode()), prefix=b"", log=None)
    found.join(10)
    capsys.readouterr()
    return found


def test_what_tensorflow_logs_behind_a_traceback_is_left_out(capsys):
    text = f"{HEAD}{FRAME}ValueError: mine\n{LOG}"
    assert output(text, capsys).last_error() == f"{HEAD}{FRAME}ValueError: mine"


def test_without_a_traceback_it_may_be_the_cause(capsys):
    assert "StartAbort" in output(LOG, capsys).last_error()


def test_a_mistake_of_the_users_is_one_line(capsys):
    line = "kdist.errors.UserError: the workers differ at fit"
    assert output(f"{HEAD}{FRAME}{line}\n{LOG}", capsys).last_error() == line


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        ("ValueError: mine", False),
        ("UnavailableError: Socket closed", True),
        ("tensorflow.python.framework.errors_impl.AbortedError: it", True),
        ("RuntimeError: a task has missed its heartbeats", True),
    ],
)
def test_the_name_of_a_file_is_no_lost_connection(error, is_lost, capsys):
    assert output(f"{HEAD}{FRAME}{error}\n", capsys).lost_connection() == is_lost


def test_a_traceback_that_the_program_went_on_behind_is_not_its_end(capsys):
    found = output(f"{HEAD}{FRAME}ValueError: handled\nmore\n", capsys)
    ended = Worker.__new__(Worker)
    ended.output, ended.ended_at = found, time.monotonic()
    assert ended.failed_at == found.failed_at
    assert ended.last_error().startswith("Traceback")
    ended.ended_at += workers._LONGEST_END_SECONDS
    assert ended.failed_at is None
    assert ended.last_error().endswith("more")
