"""What ends a worker that waits for others: said by the watch itself, and done in a process."""

import signal
import socket
import subprocess
import sys

from kdist.workers import start_timeout

SECONDS = 900  # no test takes as long


def test_an_address_is_there_or_says_why_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert start_timeout.find_problem(f"127.0.0.1:{port}") is None
    assert start_timeout.find_problem("127.0.0.1:1") == "Connection refused"
    assert start_timeout.find_problem("no.such.host.invalid:1")


def test_the_message_names_those_that_have_not_come():
    others = [(1, "a:1", None), (2, "b:1", "Connection refused"), (3, "c:1", "no answer")]
    assert start_timeout.format_message(0, 60, others) == (
        "kdist: error: worker 0 has waited 60 seconds for the other workers to start. Worker 2"
        " (b:1, Connection refused) and worker 3 (c:1, no answer) have not started: are the"
        " programs started, and can the machines reach each other at these ports?"
    )
    assert "All other workers listen, but are not connected" in start_timeout.format_message(
        0, 60, others[:1]
    )


def waiting(seconds, then):
    """A process that waits for a worker that never comes, as a strategy does."""
    code = "import kdist, signal; kdist.prepare_tensorflow()\n"
    code += "from kdist.workers.hang_detection import limit_start\n"
    code += f"with limit_start(['x:1', '127.0.0.1:1'], worker=0, seconds={seconds}): {then}"
    return subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=SECONDS
    )


def test_a_worker_that_waits_is_ended_by_the_watch():
    done = waiting(0.01, "signal.pause()")
    assert done.returncode == -signal.SIGKILL
    assert "Worker 1 (127.0.0.1:1, Connection refused) has not started" in done.stderr


def test_a_worker_that_has_started_stays_and_its_watch_ends():
    done = waiting(SECONDS, "pass")  # else its standard error would stay open
    assert (done.returncode, done.stderr) == (0, "")
