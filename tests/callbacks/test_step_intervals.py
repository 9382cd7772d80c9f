"""Intervals of steps over epochs, in exact numbers."""

import math

from hypothesis import given
from hypothesis import strategies as st
from kdist.callbacks.step_intervals import StepIntervals, StepTotals, step_line

STEP = st.builds(
    StepTotals,
    steps=st.just(1),
    images=st.integers(1, 99),
    seconds=st.integers(1, 9),
    loss=st.integers(-9, 9),
    weight=st.integers(1, 99),
)


def total(steps):
    return StepTotals(*(sum(values) for values in zip(*steps, strict=True))) if steps else None


@given(epochs=st.lists(st.lists(STEP, max_size=7), max_size=4), every=st.integers(1, 6))
def test_every_interval_has_its_own_steps(epochs, every):
    intervals, ended, done = StepIntervals(), [], 0
    for epoch in epochs:
        for at in range(1, len(epoch) + 1):
            done += 1
            if done % 7 == 3:  # as a training that is resumed from what was saved
                rest = intervals.so_far(total(epoch[: at - 1]) or StepTotals())
                intervals = StepIntervals(rest.minus(total(epoch[: at - 1]) or StepTotals()))
            if done % every == 0:
                ended.append(intervals.end(total(epoch[:at])))
        intervals.end_epoch(total(epoch) or StepTotals())
    steps = [step for epoch in epochs for step in epoch]
    whole = len(steps) // every * every
    assert ended == [total(steps[at : at + every]) for at in range(0, whole, every)]
    assert intervals.so_far(StepTotals()) == (total(steps[whole:]) or StepTotals())


def test_the_line_is_the_tutorials():
    totals = StepTotals(steps=10, images=1284.18, seconds=0.6, loss=18.3, weight=10)
    assert step_line(120, totals) == (
        "step 120, loss = 1.83 (2140.3 examples/sec; 0.060 sec/batch)"
    )
    assert step_line(3, StepTotals()) == "step 3, loss = nan (nan examples/sec; nan sec/batch)"
    assert math.isnan(StepTotals(loss=math.nan).plus(totals).loss)
