import pytest
from kdist.callbacks import PrintTotalTime
from tiny_training import (
    OTHER_CALLBACK_SECONDS,
    STEP_SECONDS,
    STEPS,
    VALIDATION_SECONDS,
    FakeClock,
    Ticker,
    tiny_fit,
)

EPOCH_SECONDS = STEPS * STEP_SECONDS + VALIDATION_SECONDS + OTHER_CALLBACK_SECONDS


def test_the_time_of_every_epoch_and_of_all(capsys):
    clock = FakeClock()
    tiny_fit([Ticker(clock), PrintTotalTime(clock=clock)], epochs=2)
    assert capsys.readouterr().out.splitlines() == [
        f"Cumulative training time after epoch 1: {EPOCH_SECONDS:.2f} seconds",
        f"Cumulative training time after epoch 2: {2 * EPOCH_SECONDS:.2f} seconds",
        f"Cumulative training time: {2 * EPOCH_SECONDS:.2f} seconds",
    ]


def test_a_resumed_run_counts_the_time_before(capsys):
    clock = FakeClock()
    callback = PrintTotalTime(clock=clock)
    callback.set_state({"seconds": 1000.0})
    tiny_fit([Ticker(clock), callback], initial_epoch=2, epochs=3)
    assert f"after epoch 3: {1000 + EPOCH_SECONDS:.2f} seconds\n" in capsys.readouterr().out
    assert callback.seconds == 1000 + EPOCH_SECONDS


def test_an_interrupted_run_knows_its_time_up_to_the_last_step():
    class Interrupt(Ticker):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if batch == 1:
                raise KeyboardInterrupt

    clock = FakeClock()
    callback = PrintTotalTime(clock=clock)
    with pytest.raises(KeyboardInterrupt):
        tiny_fit([callback, Interrupt(clock)])
    assert callback.seconds == STEP_SECONDS
