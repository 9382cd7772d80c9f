"""When checkpoints are due, and when workers ask each other, with clocks of the tests."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.checkpoint.save_times import SaveTimes
from kdist.workers.worker_exchange import PeriodicExchange


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
    assert not times.is_due_by_seconds()
    clock.now += 1
    assert times.is_due_by_seconds()
    times.record_save(began=clock.now)
    assert not times.is_due_by_seconds()
    assert not times.is_due_by_steps()


def test_by_steps(clock):
    times = SaveTimes(every_seconds=None, every_steps=10, clock=clock)
    times.count_steps(9)
    clock.now += 10**9
    assert not times.is_due_by_steps()
    assert not times.is_due_by_seconds()
    times.count_steps(5)
    assert times.is_due_by_steps()
    times.record_save(began=clock.now)
    times.count_steps(9)
    assert not times.is_due_by_steps()


def test_ends_of_short_epochs_take_one_percent_at_most(clock):
    """Of a thousand epochs of 0.1 s, with saves that take 0.02 s."""
    times = SaveTimes(every_seconds=600, every_steps=None, clock=clock)
    saves = 0
    for _ in range(1000):
        clock.now += 0.1
        if times.is_due_at_epoch_end():
            began, clock.now = clock.now, clock.now + 0.02
            times.record_save(began=began)
            saves += 1
    assert 45 < saves <= 50


def test_the_end_of_a_long_epoch_is_saved_whatever_the_seconds(clock):
    times = SaveTimes(every_seconds=None, every_steps=None, clock=clock)
    assert times.is_due_at_epoch_end()
    times.record_save(began=clock.now - 0.5)
    clock.now += 49
    assert not times.is_due_at_epoch_end()
    clock.now += 1
    assert times.is_due_at_epoch_end()


class Others:
    """Two workers, of which this one is asked; the chief is `chief`, or this one."""

    count, is_chief = 2, True

    def __init__(self, chief=None):
        self.chief = chief

    def exchange(self, event, value):
        del event
        return [self.chief or value, value]


def steps_of_exchanges(exchange, clock, seconds):
    found = []
    for step, took in enumerate(seconds, 1):
        clock.now += took
        if exchange.is_due():
            exchange.exchange("a step", None)
            found.append(step)
    return found


@given(seconds=st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=300))
def test_exchanges_are_neither_rare_nor_frequent(seconds):
    clock = Clock()
    found = steps_of_exchanges(PeriodicExchange(Others(), clock), clock, seconds)
    assert found[0] == 1
    gaps = [later - earlier for earlier, later in itertools.pairwise(found)]
    before = [1, *gaps]
    for earlier, gap in zip(before, gaps, strict=False):
        assert gap <= 2 * earlier


@pytest.mark.parametrize("step", [0.003, 0.01, 0.25, 0.9, 3.0])
def test_even_steps_exchange_about_once_a_second(step):
    clock = Clock()
    found = steps_of_exchanges(PeriodicExchange(Others(), clock), clock, [step] * 3000)
    gap = found[-1] - found[-2]
    assert gap == 1 or 0.5 < gap * step <= 1.0


def test_the_chief_names_the_next_step():
    clock = Clock()
    exchange = PeriodicExchange(Others(chief=["value", 4]), clock)
    assert exchange.is_due()
    assert exchange.exchange("a step", "own") == ["value", "own"]
    assert [exchange.is_due() for _ in range(4)] == [False, False, False, True]


def test_one_worker_is_asked_after_every_step():
    alone = Others()
    alone.count = 1
    alone.exchange = lambda event, value: [value]
    clock = Clock()
    found = steps_of_exchanges(PeriodicExchange(alone, clock), clock, [1e-3] * 2000)
    assert found == list(range(1, 2001))
