import copy
import doctest
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.callbacks import throughput_meter
from kdist.callbacks.throughput_meter import ThroughputMeter
from kdist.errors import UserError
from tiny_training import FakeClock

stretches = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats(min_value=1e-6, max_value=1e6)), min_size=1
)


@given(stretches)
def test_the_rate_is_all_images_over_all_seconds(stretches):
    meter = ThroughputMeter()
    rates = [meter.add(images=images, seconds=seconds) for images, seconds in stretches]
    assert rates == [images / seconds for images, seconds in stretches]
    images = sum(images for images, _ in stretches)
    seconds = math.fsum(seconds for _, seconds in stretches)
    assert meter.images == images
    assert math.isclose(meter.seconds, seconds, rel_tol=1e-12)
    assert math.isclose(meter.images_per_second, images / seconds, rel_tol=1e-12)


def test_a_stretch_lasts_from_start_to_the_last_lap():
    clock = FakeClock()
    meter = ThroughputMeter(clock=clock)
    assert not meter.started
    meter.start()
    assert meter.started
    for _ in range(3):
        clock.now += 2.0
        meter.lap()
    clock.now += 50.0
    assert meter.add(images=12) == 2.0
    assert (meter.images, meter.seconds) == (12, 6.0)
    assert not meter.started


def test_a_stretch_left_without_its_images_is_dropped():
    clock = FakeClock()
    meter = ThroughputMeter(clock=clock)
    meter.start()
    clock.now += 7.0
    meter.start()
    clock.now += 2.0
    meter.lap()
    assert meter.add(images=8) == 4.0


def test_no_time_gives_no_rate():
    meter = ThroughputMeter()
    assert math.isnan(meter.images_per_second)
    meter.start()
    assert math.isnan(meter.add(images=5))


def test_it_goes_on_from_what_was_counted_before():
    meter = ThroughputMeter(images=100, seconds=10.0)
    assert meter.images_per_second == 10.0
    meter.add(images=100, seconds=30.0)
    assert meter.images_per_second == 5.0


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda meter: pickle.loads(pickle.dumps(meter))])
def test_copies_count_for_themselves(clone):
    meter = ThroughputMeter()
    meter.add(images=10, seconds=1.0)
    twin = clone(meter)
    twin.add(images=10, seconds=3.0)
    assert (meter.images_per_second, twin.images_per_second) == (10.0, 5.0)


@pytest.mark.parametrize(
    ("images", "seconds"), [(-1, 1.0), (1, -1.0), (math.inf, 1.0), (1, math.nan), (math.nan, 1.0)]
)
def test_impossible_numbers_are_refused(images, seconds):
    with pytest.raises(UserError, match="at least 0"):
        ThroughputMeter().add(images=images, seconds=seconds)
    with pytest.raises(UserError, match="at least 0"):
        ThroughputMeter(images=images, seconds=seconds)


def test_images_without_any_time_are_refused():
    with pytest.raises(UserError, match=r"start\(\)"):
        ThroughputMeter().add(images=5)


def test_the_example_in_the_docstring():
    assert doctest.testmod(throughput_meter).failed == 0
