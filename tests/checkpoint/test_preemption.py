import os
import signal
import subprocess
import sys
import threading

import pytest
from kdist.errors import UserError
from kdist.signals import PreemptionSignals


def test_a_signal_is_noted_and_the_handler_from_before_put_back():
    before = signal.getsignal(signal.SIGUSR1)
    signals = PreemptionSignals(["SIGTERM", "SIGUSR1"])
    signals.install()
    try:
        signals.check()
        assert signals.first is None
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.first is signal.SIGUSR1
        with pytest.raises(SystemExit) as ended:
            signals.check()
        assert ended.value.code == 128 + signal.SIGUSR1
    finally:
        signals.uninstall()
    assert signal.getsignal(signal.SIGUSR1) is before
    signals.uninstall()


def test_the_status_of_sigterm_is_143():
    signals = PreemptionSignals(["SIGTERM"])
    signals.first = signal.SIGTERM
    with pytest.raises(SystemExit) as ended:
        signals.check()
    assert ended.value.code == 143


def test_a_second_signal_ends_the_process_at_once():
    code = (
        "import os, signal, time\n"
        "from kdist.signals import PreemptionSignals\n"
        "PreemptionSignals(['SIGTERM']).install()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('alive', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('dead')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "alive\n")


def test_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    signals = PreemptionSignals(["SIGTERM"])
    thread = threading.Thread(target=signals.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    signals.uninstall()


def test_an_unknown_signal():
    with pytest.raises(UserError, match="unknown signal 'TERM' in preemption: pass names"):
        PreemptionSignals(["TERM"])


@pytest.mark.parametrize("hold", ["PreemptionSignals(['SIGTERM']).install()", "held.__enter__()"])
def test_a_worker_that_is_forked_meanwhile_ends_by_sigterm(hold):
    """As those of a data set, which a pool ends so and then waits for."""
    code = (
        "import os, signal, sys\n"
        "from kdist.signals import PreemptionSignals\n"
        "from kdist.signals import hold_signals\n"
        "held = hold_signals()\n"
        f"{hold}\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os._exit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
