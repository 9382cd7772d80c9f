"""When the workers of a training ask each other, with a clock that stands or runs by itself."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.checkpoints.meetings import Meetings


class Others:
    """Two workers, of which this one is asked; the chief is `chief`, or this one."""

    count, is_chief = 2, True

    def __init__(self, chief=None):
        self.chief = chief

    def exchange(self, event, value):
        del event
        return [self.chief or value, value]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def steps_of_meetings(meetings, clock, seconds):
    found = []
    for step, took in enumerate(seconds, 1):
        clock.now += took
        if meetings.are_due():
            meetings.exchange("a step", None)
            found.append(step)
    return found


@given(seconds=st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=300))
def test_meetings_are_neither_rare_nor_frequent(seconds):
    clock = Clock()
    found = steps_of_meetings(Meetings(Others(), clock), clock, seconds)
    assert found[0] == 1
    gaps = [later - earlier for earlier, later in itertools.pairwise(found)]
    before = [1, *gaps]
    for earlier, gap in zip(before, gaps, strict=False):
        assert gap <= 2 * earlier


@pytest.mark.parametrize("step", [0.003, 0.01, 0.25, 0.9, 3.0])
def test_even_steps_are_met_about_once_a_second(step):
    clock = Clock()
    found = steps_of_meetings(Meetings(Others(), clock), clock, [step] * 3000)
    gap = found[-1] - found[-2]
    assert gap == 1 or 0.5 < gap * step <= 1.0


def test_the_chief_names_the_next_step():
    clock = Clock()
    meetings = Meetings(Others(chief=["news", 4]), clock)
    assert meetings.are_due()
    assert meetings.exchange("a step", "own") == ["news", "own"]
    assert [meetings.are_due() for _ in range(4)] == [False, False, False, True]


def test_one_worker_is_asked_after_every_step():
    alone = Others()
    alone.count = 1
    alone.exchange = lambda event, value: [value]
    clock = Clock()
    assert steps_of_meetings(Meetings(alone, clock), clock, [1e-3] * 20) == list(range(1, 21))
