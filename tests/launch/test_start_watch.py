"""What ends a worker that waits for others: said by the watch itself, and done in a process."""

import signal
import socket
import subprocess
import sys

import pytest
from kdist.errors import UserError
from kdist.launch import start_watch
from kdist.launch.options import LaunchOptions, WorkerSettings, variables, worker_settings

SECONDS = 60  # no test takes as long


def test_an_address_is_there_or_says_why_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert start_watch.problem(f"127.0.0.1:{port}") is None
    assert start_watch.problem("127.0.0.1:1") == "Connection refused"
    assert start_watch.problem("no.such.host.invalid:1")


def test_the_message_names_those_that_have_not_come():
    others = [(1, "a:1", None), (2, "b:1", "Connection refused"), (3, "c:1", "no answer")]
    assert start_watch.message(0, 60, others) == (
        "kdist: error: worker 0 has waited 60 seconds for the others to start: worker 2 (b:1:"
        " Connection refused), worker 3 (c:1: no answer) have not come: is it started there, and"
        " can the machines reach each other at these ports?"
    )
    assert "all others listen, but have not come together" in start_watch.message(0, 60, others[:1])


def waiting(seconds, then):
    """A process that waits for a worker that never comes, as a strategy does."""
    code = "import signal, sys; from kdist.distribute.worker_watch import limit_start\n"
    code += f"with limit_start(['x:1', '127.0.0.1:1'], worker=0, seconds={seconds}): {then}"
    return subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=SECONDS
    )


def test_a_worker_that_waits_is_ended_by_the_watch():
    done = waiting(0.01, "signal.pause()")
    assert done.returncode == -signal.SIGKILL
    assert "worker 1 (127.0.0.1:1: Connection refused) has not come" in done.stderr


def test_a_worker_that_has_started_stays_and_its_watch_ends():
    done = waiting(SECONDS, "pass")  # else its standard error would stay open
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_come_from_the_program_then_the_launcher_then_defaults():
    options = LaunchOptions(hang_seconds=60, start_timeout=30.0)
    environment = variables(**options.limits)
    assert environment == {"KDIST_HANG_SECONDS": "60", "KDIST_START_TIMEOUT_SECONDS": "30.0"}
    assert worker_settings(environment, start_timeout_seconds=5) == WorkerSettings(
        hang_seconds=60, start_timeout_seconds=5
    )
    assert worker_settings({}, hang_seconds=None) == WorkerSettings()


@pytest.mark.parametrize(
    ("environment", "given", "message"),
    [
        ({"KDIST_HANG_SECONDS": "soon"}, {}, "KDIST_HANG_SECONDS='soon': expected seconds"),
        ({"KDIST_HANG_SECONDS": "nan"}, {}, "received KDIST_HANG_SECONDS nan: pass seconds"),
        ({}, {"heartbeat_seconds": 0}, "received heartbeat_seconds 0: pass seconds, from 1 to"),
        ({}, {"hang_seconds": "60"}, "received hang_seconds '60'"),
        ({}, {"hang_seconds": -1}, "from 0 to 10000000, 0 for never"),
    ],
)
def test_settings_that_cannot_be_are_refused(environment, given, message):
    with pytest.raises(UserError, match=message):
        worker_settings(environment, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heartbeat_seconds": 0.5}, "--heartbeat-seconds 0.5: pass seconds, from 1"),
        ({"hang_seconds": float("inf")}, "--hang-seconds inf"),
        ({"start_timeout": 0}, "--start-timeout 0: pass"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        LaunchOptions(**options)
