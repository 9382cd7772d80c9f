import dataclasses
import math

import pytest
from kdist.errors import UserError
from kdist.finders.advice import Measurements, advise, reasons
from kdist.performance.links import Link

INSTANT = Link(name="instant", latency_seconds=0, bytes_per_second=math.inf)
MEASURED = Measurements(
    seconds={16: 0.016, 32: 0.032, 64: 0.064},
    noise_scale=1e9,
    rate=0.1,
    rate_batch=32,
    optimizer="SGD",
    gradient_bytes=4e6,
)


def test_noise_beyond_any_batch_and_a_free_link_is_as_fast_as_there_are_replicas():
    advice = advise(MEASURED, replicas=8, link=INSTANT)
    assert advice.speedup == pytest.approx(8, rel=1e-5)
    assert advice.slowest <= advice.speedup <= advice.fastest


def test_without_noise_more_replicas_are_no_faster():
    advice = advise(dataclasses.replace(MEASURED, noise_scale=0.0), replicas=8, link=INSTANT)
    assert advice.speedup == pytest.approx(1)
    assert advice.batch_size == 16  # the least time for a step


def test_the_closed_form():
    """One batch size; McCandlish's steps 1 + noise / B, Hockney's seconds of a ring."""
    measured = dataclasses.replace(MEASURED, seconds={32: 0.032}, noise_scale=512.0)
    link = Link(name="slow", latency_seconds=0, bytes_per_second=1e9)
    advice = advise(measured, replicas=4, link=link)
    ring = 2 * 3 / 4 * 4e6 / 1e9
    expected = (1 + 512 / 32) * 0.032 / ((1 + 512 / 128) * (0.032 + ring))
    assert advice.speedup == pytest.approx(expected)
    low, high = (
        (1 + n / 32) * 0.032 / ((1 + n / 128) * (0.032 + ring)) for n in (512 / 3, 512 * 3)
    )
    assert (advice.slowest, advice.fastest) == pytest.approx((low, high))


def test_the_batch_is_the_best_of_those_measured():
    # The step hardly grows: a large batch, unless the noise says that it is wasted.
    flat = dataclasses.replace(MEASURED, seconds={16: 0.01, 32: 0.011, 64: 0.012})
    for noise, batch in ((1e9, 64), (1.0, 16)):
        measured = dataclasses.replace(flat, noise_scale=noise)
        assert advise(measured, replicas=8, link=INSTANT).batch_size == batch


def test_the_rate_follows_the_optimizers_rule():
    linear = advise(MEASURED, replicas=8, link=INSTANT)
    factor = linear.global_batch / 32
    assert linear.learning_rate == pytest.approx(0.1 * factor)
    adam = dataclasses.replace(MEASURED, optimizer="Adam")
    root = advise(adam, replicas=8, link=INSTANT)
    assert root.learning_rate == pytest.approx(0.1 * math.sqrt(factor))
    assert root.warmup_epochs == 5
    kept = advise(dataclasses.replace(MEASURED, rate_batch=4096), replicas=1, link=INSTANT)
    assert kept.warmup_epochs == 0


def test_an_unknown_noise_scale_is_a_wide_range():
    measured = dataclasses.replace(MEASURED, noise_scale=math.nan)
    advice = advise(measured, replicas=8, link=INSTANT)
    assert advice.slowest <= 1 < advice.speedup < advice.fastest
    assert advice.fastest == pytest.approx(8, rel=1e-3)
    assert any("unknown" in line for line in reasons(measured, advice, INSTANT))


def test_in_words():
    advice = advise(MEASURED, replicas=8, link=INSTANT)
    assert str(advice).startswith(f"on 8 replicas: batch {advice.batch_size} each, learning rate ")
    assert "warm-up 5 epochs, 8.0 times as fast (8.0 to 8.0)" in str(advice)
    lines = reasons(MEASURED, advice, INSTANT)
    assert "with 3 batch sizes from 16 to 64" in lines[0]


def test_an_optimizer_without_a_rule():
    with pytest.raises(UserError, match="rule"):
        advise(dataclasses.replace(MEASURED, optimizer="Lion"), replicas=8, link=INSTANT)
