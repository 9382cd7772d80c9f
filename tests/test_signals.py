import os
import signal
import threading

import pytest
from kdist.signals import ENDING_SIGNALS, Interrupted, hold_signals, raise_signals, signal_of

every = pytest.mark.parametrize("number", ENDING_SIGNALS)


def send(number):
    os.kill(os.getpid(), number)


def handlers():
    return [signal.getsignal(number) for number in ENDING_SIGNALS]


@pytest.fixture(autouse=True)
def handlers_are_put_back():
    before = handlers()
    yield
    assert handlers() == before


@every
def test_every_signal_is_raised_as_ctrl_c_is(number):
    with pytest.raises(KeyboardInterrupt) as raised, raise_signals() as received:
        send(number)
    assert signal_of(raised.value) == received.first == number
    assert str(raised.value) == signal.Signals(number).name


def test_pythons_own_interrupt_is_ctrl_c():
    assert signal_of(KeyboardInterrupt()) == signal.SIGINT


@every
def test_a_held_signal_waits_and_a_second_one_does_not(number):
    done = []
    with pytest.raises(Interrupted) as raised, hold_signals() as received:
        assert received.check() is None
        send(number)
        assert (received.first, received.has_second) == (number, False)
        done.append("the work is whole")
        send(signal.SIGTERM)
        done.append("never")
    assert received.has_second
    assert done == ["the work is whole"]
    assert raised.value.signal == signal.SIGTERM


def test_a_check_raises_what_was_held():
    with pytest.raises(Interrupted, match="SIGHUP"), hold_signals() as received:
        send(signal.SIGHUP)
        received.check()


def test_a_signal_that_was_swallowed_is_known_to_what_holds_them_later():
    with raise_signals():
        with pytest.raises(KeyboardInterrupt):  # as in a destructor
            send(signal.SIGTERM)
        with hold_signals() as received:
            assert received.first == signal.SIGTERM


def test_handlers_of_the_caller_and_what_is_ignored_stay():
    before = handlers()
    seen = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raise_signals(), hold_signals() as received:
            send(signal.SIGTERM)
            send(signal.SIGHUP)
    finally:
        for number, handler in zip(ENDING_SIGNALS, before, strict=True):
            signal.signal(number, handler)
    assert received.first is None
    assert seen == [signal.SIGTERM]


def test_outside_the_main_thread_nothing_changes():
    before, inside = handlers(), []

    def work():
        with raise_signals(), hold_signals() as received:
            inside.extend([handlers(), received.first])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before, None]
