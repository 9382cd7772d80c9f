import doctest
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.performance import step_time
from kdist.performance.links import LINKS, Link
from kdist.performance.step_time import format_steps, parse_replicas, predict_step, ring_seconds

seconds = st.floats(min_value=1e-4, max_value=10)
sizes = st.floats(min_value=1, max_value=1e11)
counts = st.integers(min_value=1, max_value=2048)
calls = st.integers(min_value=1, max_value=100)
shares = st.floats(min_value=0, max_value=1)
scalings = st.sampled_from(["weak", "strong"])
links = st.builds(
    Link,
    name=st.just("any"),
    latency_seconds=st.floats(min_value=0, max_value=1e-3),
    bytes_per_second=st.floats(min_value=1e6, max_value=1e12),
)
steps = st.fixed_dictionaries(
    {
        "compute_seconds": seconds,
        "gradient_bytes": sizes,
        "replicas": counts,
        "link": links,
        "collectives": calls,
        "small_collectives": st.integers(min_value=0, max_value=400),
        "overlap": shares,
        "scaling": scalings,
    }
)

free = Link(name="free", latency_seconds=0, bytes_per_second=math.inf)


def simulated_ring(buffers, link, bytes_each):
    """A ring all-reduce of one number a chunk, message by message, and when it ends.

    A replica sends when it has what it sends and its last message is out.
    """
    replicas = len(buffers)
    now = [0.0] * replicas
    message = link.latency_seconds + bytes_each / link.bytes_per_second
    for turn in range(2 * (replicas - 1)):
        sent = [(rank - turn) % replicas for rank in range(replicas)]
        values = [buffers[rank][chunk] for rank, chunk in enumerate(sent)]
        arrival = [start + message for start in now]
        for rank in range(replicas):
            before = rank - 1
            chunk = sent[before]
            own = buffers[rank][chunk] if turn < replicas - 1 else 0
            buffers[rank][chunk] = own + values[before]
            now[rank] = max(now[rank] + message, arrival[before])
    return max(now)


def rounds_of_a_tree(replicas):
    """Those in which neighbours sum until one is left, and as many back."""
    rounds, left = 0, list(range(replicas))
    while len(left) > 1:
        rounds, left = rounds + 1, left[::2]
    return 2 * rounds


@given(replicas=st.integers(min_value=1, max_value=12), size=sizes, link=links)
def test_the_ring_takes_as_long_as_one_played_message_by_message(replicas, size, link):
    buffers = [[rank * replicas + chunk for chunk in range(replicas)] for rank in range(replicas)]
    sums = [sum(column) for column in zip(*buffers, strict=True)]
    played = simulated_ring(buffers, link, size / replicas)
    assert buffers == [sums] * replicas
    assert ring_seconds(size, replicas=replicas, link=link) == pytest.approx(played)


@given(size=sizes, replicas=counts, collectives=calls, link=links)
def test_so_many_collectives_are_as_many_rings_of_a_part_each(size, replicas, collectives, link):
    one = ring_seconds(size / collectives, replicas=replicas, link=link)
    together = ring_seconds(size, replicas=replicas, link=link, collectives=collectives)
    assert together == pytest.approx(collectives * one)


@given(size=sizes, bandwidth=st.floats(min_value=1e6, max_value=1e12))
def test_without_latency_a_large_ring_sends_the_buffer_twice(size, bandwidth):
    link = Link(name="any", latency_seconds=0, bytes_per_second=bandwidth)
    twice = 2 * size / bandwidth
    assert ring_seconds(size, replicas=10**6, link=link) == pytest.approx(twice, rel=1e-5)
    assert ring_seconds(size, replicas=2, link=link) == pytest.approx(twice / 2)


@given(replicas=counts, collectives=calls, latency=st.floats(min_value=0, max_value=1e-3))
def test_with_infinite_bandwidth_only_the_rounds_are_left(replicas, collectives, latency):
    link = Link(name="any", latency_seconds=latency, bytes_per_second=math.inf)
    taken = ring_seconds(1e9, replicas=replicas, link=link, collectives=collectives)
    assert taken == pytest.approx(collectives * 2 * (replicas - 1) * latency)


@given(step=steps)
def test_one_replica_only_computes(step):
    alone = predict_step(**step | {"replicas": 1})
    assert alone.seconds == step["compute_seconds"]
    assert (alone.communication_seconds, alone.hidden_seconds) == (0, 0)
    assert (alone.speedup, alone.efficiency) == (1, 1)


@given(step=steps)
def test_over_a_free_link_replicas_are_worth_their_number(step):
    predicted = predict_step(**step | {"link": free})
    assert (predicted.speedup, predicted.efficiency) == (step["replicas"], 1)


@given(step=steps)
def test_the_step_by_independent_arithmetic(step):
    count, link = step["replicas"], step["link"]
    compute = step["compute_seconds"] / (count if step["scaling"] == "strong" else 1)
    sent = 2 * step["gradient_bytes"] * (1 - 1 / count)
    gradients = sent / link.bytes_per_second
    gradients += step["collectives"] * (count - 1) * link.latency_seconds * 2
    exposed = max((1 - step["overlap"]) * gradients, gradients - compute * 2 / 3)
    exposed += step["small_collectives"] * rounds_of_a_tree(count) * link.latency_seconds
    predicted = predict_step(**step)
    assert predicted.seconds == pytest.approx(compute + exposed)
    samples_of_one = 1 / step["compute_seconds"]
    samples = (1 if step["scaling"] == "strong" else count) / (compute + exposed)
    assert predicted.speedup == pytest.approx(samples / samples_of_one)
    assert predicted.efficiency == pytest.approx(predicted.speedup / count)


@given(step=steps, more=st.integers(min_value=1, max_value=100))
def test_more_replicas_are_never_more_efficient(step, more):
    few = predict_step(**step)
    many = predict_step(**step | {"replicas": step["replicas"] + more})
    assert many.efficiency <= few.efficiency * (1 + 1e-12)


@given(step=steps, factor=st.floats(min_value=1, max_value=100))
@pytest.mark.parametrize(
    "change",
    [
        lambda step, factor: {"gradient_bytes": step["gradient_bytes"] * factor},
        lambda step, factor: {"collectives": math.ceil(step["collectives"] * factor)},
        lambda step, factor: {"small_collectives": math.ceil(step["small_collectives"] * factor)},
        lambda step, factor: {"overlap": step["overlap"] / factor},
        lambda step, factor: {
            "link": Link(
                name="worse",
                latency_seconds=step["link"].latency_seconds * factor,
                bytes_per_second=step["link"].bytes_per_second / factor,
            )
        },
    ],
    ids=["bytes", "collectives", "small collectives", "overlap", "link"],
)
def test_more_communication_never_makes_a_step_shorter(change, step, factor):
    worse = predict_step(**step | change(step, factor))
    assert worse.seconds >= predict_step(**step).seconds * (1 - 1e-12)


@given(step=steps)
def test_at_most_the_backward_pass_hides_communication(step):
    predicted = predict_step(**step)
    assert 0 <= predicted.hidden_seconds <= predicted.communication_seconds
    assert predicted.hidden_seconds <= 2 / 3 * predicted.compute_seconds
    assert 0 < predicted.efficiency <= 1


@given(step=steps)
def test_a_global_batch_divided_is_a_smaller_step_on_as_many_replicas(step):
    strong = predict_step(**step | {"scaling": "strong"})
    part = step["compute_seconds"] / step["replicas"]
    weak = predict_step(**step | {"scaling": "weak", "compute_seconds": part})
    assert strong == weak


def test_strong_scaling_ends_where_communication_begins():
    few, many = (
        predict_step(
            compute_seconds=0.3,
            gradient_bytes=1e8,
            replicas=replicas,
            link=LINKS["pcie"],
            scaling="strong",
        )
        for replicas in (8, 4096)
    )
    assert few.seconds < 0.06
    assert many.seconds > 2 * 1e8 / 12e9
    assert many.speedup < 0.3 / (2 * 1e8 / 12e9)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("8,64,512", (8, 64, 512)), ("1", (1,)), (" 4 , 2 ", (4, 2)), ("08,8", (8, 8))],
)
def test_a_list_of_replicas_is_parsed(text, counts):
    assert parse_replicas(text) == counts


@given(wanted=st.lists(counts, min_size=1))
def test_a_list_of_replicas_comes_back_as_it_was_written(wanted):
    assert parse_replicas(",".join(map(str, wanted))) == tuple(wanted)


@pytest.mark.parametrize(
    "text", ["", "8,", ",8", "8;64", "0", "8,-1", "1.5", "1e3", "1_0", "²", "9" * 5000]
)
def test_a_list_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="integers of at least 1: separate them .* as in 8,64,512"):
        parse_replicas(text)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"compute_seconds": 0}, "measure a step's seconds"),
        ({"compute_seconds": math.inf}, "measure a step's seconds"),
        ({"gradient_bytes": 0}, "pass the bytes of the buffer"),
        ({"replicas": 0}, "pass how many to predict for"),
        ({"replicas": 2.0}, "pass how many to predict for"),
        ({"collectives": 0}, "pass how many all-reduces there are"),
        ({"small_collectives": -1}, "pass two for each synchronized batch norm, 0 without"),
        ({"small_collectives": True}, "pass two for each synchronized batch norm, 0 without"),
        ({"overlap": 1.1}, "fraction from 0 to 1: pass 0 if"),
        ({"overlap": -0.1}, "fraction from 0 to 1: pass 0 if"),
        ({"overlap": math.nan}, "fraction from 0 to 1: pass 0 if"),
        ({"overlap": True}, "fraction from 0 to 1: pass 0 if"),
        ({"scaling": "linear"}, "one of weak, strong"),
    ],
)
def test_a_step_that_cannot_be_is_refused(wrong, hint):
    step = {"compute_seconds": 0.3, "gradient_bytes": 1e8, "replicas": 8, "link": LINKS["pcie"]}
    with pytest.raises(
        UserError, match=f"{next(iter(wrong))}.* is .*{hint}|size_bytes is .*{hint}"
    ):
        predict_step(**step | wrong)


def test_the_table_has_a_row_for_every_step_under_its_head():
    predicted = [
        predict_step(
            compute_seconds=0.3, gradient_bytes=1e8, replicas=replicas, link=LINKS["ethernet"]
        )
        for replicas in (1, 8, 512)
    ]
    head, *rows = format_steps(predicted).splitlines()
    assert [row.split()[0] for row in rows] == ["1", "8", "512"]
    assert {len(row) for row in rows} == {len(head)}
    assert rows[0].split()[1:] == ["300.00", "300.00", "0.00", "0.00", "1.00", "100.0", "%"]


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(step_time).failed == 0


def test_predicting_does_not_import_a_framework():
    code = "import sys, kdist.performance.step_time; "
    code += "sys.exit(bool({'tensorflow', 'keras'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
