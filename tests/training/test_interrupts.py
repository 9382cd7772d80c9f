import os
import signal

import pytest
from kdist.signals import ENDING
from kdist.training.interrupts import interrupts_at_batch_end


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_test_batch_end", "on_epoch_begin"])
def test_a_signal_waits_for_the_end_of_the_batch(hook, number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as raised, interrupts_at_batch_end() as callback:
        getattr(callback, hook)(0)
        os.kill(os.getpid(), number)
        callback.on_epoch_end(0)
        getattr(callback, hook)(1)
    assert raised.value.signal == number
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait():
    with pytest.raises(KeyboardInterrupt), interrupts_at_batch_end():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()  # never reached
