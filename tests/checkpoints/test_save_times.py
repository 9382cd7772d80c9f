import pytest
from kdist.checkpoints.save_times import SaveTimes


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_by_seconds(clock):
    times = SaveTimes(every_seconds=60, every_steps=None, clock=clock)
    clock.now += 59
    assert not times.by_seconds()
    clock.now += 1
    assert times.by_seconds()
    times.saved(began=clock.now)
    assert not times.by_seconds()
    assert not times.by_steps()


def test_by_steps(clock):
    times = SaveTimes(every_seconds=None, every_steps=10, clock=clock)
    times.trained(9)
    clock.now += 10**9
    assert not times.by_steps()
    assert not times.by_seconds()
    times.trained(5)
    assert times.by_steps()
    times.saved(began=clock.now)
    times.trained(9)
    assert not times.by_steps()


def test_ends_of_short_epochs_take_one_percent_at_most(clock):
    """Of a thousand epochs of 0.1 s, with saves that take 0.02 s."""
    times = SaveTimes(every_seconds=600, every_steps=None, clock=clock)
    saves = 0
    for _ in range(1000):
        clock.now += 0.1
        if times.at_epoch_end():
            began, clock.now = clock.now, clock.now + 0.02
            times.saved(began=began)
            saves += 1
    assert 45 < saves <= 50


def test_the_end_of_a_long_epoch_is_saved_whatever_the_seconds(clock):
    times = SaveTimes(every_seconds=None, every_steps=None, clock=clock)
    assert times.at_epoch_end()
    times.saved(began=clock.now - 0.5)
    clock.now += 49
    assert not times.at_epoch_end()
    clock.now += 1
    assert times.at_epoch_end()
