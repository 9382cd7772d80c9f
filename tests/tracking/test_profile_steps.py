import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from kdist.tracking.profile_steps import ProfileSteps


class Model:
    def __init__(self, steps_per_execution):
        self.steps_per_execution = steps_per_execution


def profiled(tmp_path, *, first, last, execution, epoch_steps, epochs):
    """The steps trained while the profiler was on, in a fit as Keras tells it."""
    on, seen, trained = [], [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.profiler.experimental, "start", lambda folder: on.append(folder))
        patch.setattr(tf.profiler.experimental, "stop", on.clear)
        callback = ProfileSteps(tmp_path, first=first, last=last)
        callback.set_model(Model(execution))
        callback.set_params({"steps": epoch_steps})
        callback.on_train_begin()
        for epoch in range(epochs):
            callback.on_epoch_begin(epoch)
            for begin in range(0, epoch_steps, execution):
                callback.on_train_batch_begin(begin)
                steps = range(trained + 1, trained + 1 + min(execution, epoch_steps - begin))
                seen += [list(steps)] if on else []
                trained = steps[-1]
                callback.on_train_batch_end(begin + execution - 1)
            callback.on_epoch_end(epoch)
        callback.on_train_end()
        assert not on
    return seen


@given(st.integers(1, 12), st.integers(0, 8), st.integers(1, 5), st.integers(1, 6))
def test_whole_executions_that_hold_the_steps_are_profiled(first, more, execution, epoch_steps):
    last, epochs = first + more, 24
    seen = profiled(
        "x", first=first, last=last, execution=execution, epoch_steps=epoch_steps, epochs=epochs
    )
    wanted = set(range(first, last + 1))
    assert wanted <= {step for steps in seen for step in steps}
    assert all(wanted & set(steps) for steps in seen)


def test_training_that_ends_earlier_ends_the_profile(tmp_path):
    seen = profiled(tmp_path, first=3, last=99, execution=1, epoch_steps=4, epochs=1)
    assert seen == [[3], [4]]


def test_training_that_never_gets_there_is_told(tmp_path):
    with pytest.warns(UserWarning, match="nothing was profiled: training ended after step 4"):
        profiled(tmp_path, first=5, last=6, execution=1, epoch_steps=4, epochs=1)
