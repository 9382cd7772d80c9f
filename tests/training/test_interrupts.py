import os
import signal

import pytest
from kdist.signals import ENDING_SIGNALS, hold_signals
from kdist.training.run_callbacks import RaiseAtBatchEnd


@pytest.mark.parametrize("number", ENDING_SIGNALS)
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_test_batch_end", "on_epoch_begin"])
def test_a_signal_waits_for_the_end_of_the_batch(hook, number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as raised, hold_signals() as received:
        callback = RaiseAtBatchEnd(received)
        getattr(callback, hook)(0)
        os.kill(os.getpid(), number)
        callback.on_epoch_end(0)
        getattr(callback, hook)(1)
    assert raised.value.signal == number
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait():
    with pytest.raises(KeyboardInterrupt), hold_signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()  # never reached
