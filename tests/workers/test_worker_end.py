"""How a worker ends: what it tells the others, its exit code, its handler of SIGTERM."""

import functools
import os
import signal
import sys

import pytest
import tensorflow as tf
from kdist._upstream import worker_failures, worker_store
from kdist._upstream.worker_failures import find_failures, report_failure
from kdist.errors import (
    LOST_WORKER_EXIT_CODE,
    TrainingError,
    UserError,
    failure_handlers,
    format_code_line,
    handle_failure,
)
from kdist.signals import hold_signals
from kdist.workers import worker_end
from kdist.workers.agreement import Agreement

ENDED = "it has ended, or cannot be reached"
LOST = tf.errors.UnavailableError(None, None, "Socket closed")


@pytest.fixture
def ends(monkeypatch):
    """Messages to other workers, and the exit code."""
    found = []
    monkeypatch.setattr(worker_end, "report_failure", found.append)
    monkeypatch.setattr(worker_end, "run_exit_functions", lambda: found.append("exit functions"))
    monkeypatch.setattr(os, "_exit", found.append)
    monkeypatch.setattr(worker_end, "_end_after", lambda *_: None)  # would end this process later
    monkeypatch.setattr(sys, "excepthook", lambda *_: found.append("printed"))
    before, handler = [*failure_handlers], signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker_end.end_together(0, lambda: [None, ENDED])
    yield found
    failure_handlers[:] = before
    signal.signal(signal.SIGTERM, handler)


def uncaught(error):
    sys.excepthook(type(error), error, None)


def test_a_worker_that_lost_another_one_says_which_and_may_be_started_again(ends, capsys):
    uncaught(LOST)
    assert ends[-1] == LOST_WORKER_EXIT_CODE
    assert capsys.readouterr().err == f"kdist: worker 1 has failed: {ENDED}\n"


def test_the_error_of_another_worker_is_no_loss(ends, capsys):
    """An error would come again, however soon connections were closed."""
    worker_end.end_together(0, lambda: [None, None, "ValueError: mine"])
    uncaught(LOST)
    assert ends[-1] == 1  # after that of the fixture
    assert "kdist: worker 2 has failed: ValueError: mine" in capsys.readouterr().err


def test_a_worker_that_learns_of_a_lost_one_as_it_waits_may_be_started_again(ends, monkeypatch):
    monkeypatch.setattr(worker_failures, "chief_answers", lambda: False)
    monkeypatch.setattr(worker_failures, "chief_is_lost", lambda: True)

    class Nobody:
        def set_key(self, key, value):
            pass

        def get_key(self, key, *, timeout_ms):
            return None

    agreement = Agreement(1, 2, Nobody(), failures=lambda: find_failures(None))
    with pytest.raises(TrainingError, match="worker 0 has failed: it does not answer") as lost:
        agreement.exchange("fit", None)
    uncaught(lost.value)
    assert ends[-1] == LOST_WORKER_EXIT_CODE


def test_an_error_of_all_workers_is_one_line_with_its_place(ends, capsys):
    error = UserError("they differ")
    error.is_raised_on_all_workers = True
    try:
        raise error
    except UserError as caught:
        line = caught.__traceback__.tb_lineno
        sys.excepthook(UserError, caught, caught.__traceback__)
    assert capsys.readouterr().err == (
        f"kdist: error: worker 0 ({format_code_line(__file__, line)}): they differ\n"
    )
    assert ends == ["UserError: they differ", "exit functions", 1]


def test_a_process_that_was_forked_tells_nobody(ends, monkeypatch):
    """A fork has its parent's connection, and would end it."""
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    uncaught(ValueError("in a child"))
    handle_failure(ValueError("in a child"), 2)
    assert ends == ["printed"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("mine\nand more"), ["printed", "ValueError: mine", "exit functions", 1]),
        (KeyboardInterrupt(), ["printed", "KeyboardInterrupt: "]),  # Python's own exit code
    ],
)
def test_an_exception_reaches_the_others_before_the_worker_ends(ends, error, expected):
    uncaught(error)
    assert ends == expected


def test_an_error_of_the_command_line_keeps_its_exit_code(ends):
    handle_failure(ValueError("mine"), 2)
    assert ends == ["ValueError: mine", "exit functions", 2]


def test_sigterm_reaches_the_others_and_may_be_held(ends, monkeypatch):
    with hold_signals() as received:
        os.kill(os.getpid(), signal.SIGTERM)
    assert received.first == signal.SIGTERM
    killed = []
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None)
    assert ends == ["worker 0 got SIGTERM"]
    assert killed == [(os.getpid(), signal.SIGTERM)]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_program_stays(ends):
    mine = functools.partial(print)
    signal.signal(signal.SIGTERM, mine)
    worker_end.end_together(0, list)
    assert signal.getsignal(signal.SIGTERM) is mine


def test_the_store_says_where_there_is_none():
    """TensorFlow's library has the functions."""
    with pytest.raises(tf.errors.OpError):
        worker_store.set_key("kdist/test", "value")
    report_failure("nothing to tell")
    worker_store.delete_key("kdist/test")
