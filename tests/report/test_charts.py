"""The points of charts, and their places in the SVG."""

import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.report.charts import Chart, Figure, Point, Series
from kdist.report.find_records import read_study
from kdist.report.write_report import draw_learning_curves, draw_search, draw_sweep, name_series
from kdist.training.config import TrainConfig
from kdist.training.run_record import read_run
from report_folders import (
    accuracy_rows,
    scaling_rows,
    throughput_rows,
    write_run,
    write_search,
    write_sweep,
)


def charts_of(figure):
    return {chart.title: chart for chart in figure.visible_charts}


def curves_of(*runs):
    return draw_learning_curves([read_run(run) for run in runs])


def test_the_curves_of_a_run(tmp_path):
    figure = curves_of(write_run(tmp_path / "a"))
    by_epoch, by_seconds = figure.charts[:2]
    assert by_epoch.title == by_seconds.title == "Validation accuracy"
    (series,) = by_epoch.series
    assert (series.name, series.points[1]) == ("a", Point(2, 0.8))
    assert [point.x for point in by_seconds.series[0].points] == [10, 20, 30]


def test_a_chart_for_each_column_that_was_logged(tmp_path):
    extra = {"batch_norm_gap": [0.9, 0.4, 0.2]}
    plain, watched = write_run(tmp_path / "plain"), write_run(tmp_path / "watched", extra=extra)
    title = "Batch norm: gap between moving and batch statistics"
    assert title not in charts_of(curves_of(plain))
    plain_series, watched_series = charts_of(curves_of(plain, watched))[title].series
    assert plain_series.points == []
    assert watched_series.points[-1] == Point(3, 0.2)


def test_a_run_of_which_nothing_is_known_is_not_drawn(tmp_path):
    run = write_run(tmp_path / "a")
    for file in ("summary.json", "history.csv"):
        (run / file).unlink()
    assert draw_learning_curves([read_run(run, unfinished=True)]).visible_charts == []


def drawn(folder, kind, rows):
    """The charts of a sweep by title; of each series the points by place."""
    sweep = read_study(write_sweep(folder, kind, rows))
    figure = draw_sweep(sweep, sweep.experiment.summarize(sweep.done))
    return {
        chart.title: {s.name: {point.x: point for point in s.visible_points} for s in chart.series}
        for chart in figure.visible_charts
    }


def test_speed_and_step_time_by_batch(tmp_path):
    found = drawn(tmp_path / "s", "throughput", throughput_rows())
    # The rows are made of 50 ms a step and 2 ms an image, the second round 10 % slower.
    milliseconds = found["Milliseconds per step"]["replicas 2"]
    for batch in (8, 16, 32, 64):
        assert milliseconds[batch].y == pytest.approx(1.05 * (50 + 4 * batch))
        assert milliseconds[batch].high == pytest.approx(1.1 * (50 + 4 * batch))
    speed = found["Images per second"]["replicas 1"][8]
    assert (speed.low, speed.high) == pytest.approx((8 / 0.0726, 8 / 0.066))


def test_accuracy_and_time_to_target_have_bars(tmp_path):
    found = drawn(tmp_path / "s", "accuracy", accuracy_rows())
    point = found["Time to target, seconds"]["lr rule linear"][32]
    assert (point.y, point.low, point.high) == (29, 28, 30)
    # One of three seeds reached the target with the batch of 64.
    assert list(found["Time to target, seconds"]["lr rule none"]) == [32]
    best = found["Best validation accuracy"]["lr rule linear"][32]
    assert best.high == pytest.approx(0.895)
    never = [row | {"reached_target": False} for row in accuracy_rows()]
    assert list(drawn(tmp_path / "t", "accuracy", never)) == ["Best validation accuracy"]


def test_scaling_efficiency(tmp_path):
    found = drawn(tmp_path / "s", "scaling", scaling_rows())
    efficiency = [point.y for point in found["Efficiency"]["measured"].values()]
    assert efficiency == pytest.approx([1.0, 0.9, 0.81])


def test_series_are_named_after_what_varies():
    rows = [{"replicas": r, "lr_rule": rule} for r in (1, 2) for rule in ("linear", "sqrt")]
    assert name_series(rows, ["lr_rule", "replicas"])[:2] == [
        "lr rule linear, replicas 1",
        "lr rule sqrt, replicas 1",
    ]
    assert name_series(rows[:1], ["lr_rule"]) == ["measured"]


SPACE = {
    "base_lr": {"min": 0.0001, "max": 0.1, "sampling": "log"},
    "optimizer": ["sgd", "adam"],
    "ema_momentum": [None, 0.5, 0.9],
    "batch_size": [16, 32],
}
VALUES = [
    {"base_lr": 0.0001, "optimizer": "sgd", "ema_momentum": None, "batch_size": 16},
    {"base_lr": 0.1, "optimizer": "adam", "ema_momentum": 0.5, "batch_size": 16},
    {"base_lr": 0.01, "optimizer": "sgd", "ema_momentum": 0.9, "batch_size": 16},
]


def search(folder, scores, *, reached=(None,) * 3, **options):
    """The figure of a search of three trials; one without a score failed."""
    trials = [
        {"values": values, "score": score, "reached": met}
        | ({} if score is not None else {"status": "failed", "error": "no"})
        for values, score, met in zip(VALUES, scores, reached, strict=True)
    ]
    return draw_search(read_study(write_search(folder, trials, space=SPACE, **options)))


def test_a_chart_for_each_hyperparameter_that_varied(tmp_path):
    figure = search(tmp_path / "s", [2.0, 3.0, 1.0])
    axes = {chart.x_label: chart for chart in figure.charts}
    assert list(axes) == ["Trial", "base_lr", "optimizer", "ema_momentum"]
    first = {name: chart.series[0].points[0].x for name, chart in axes.items()}
    assert first == {"Trial": 1, "base_lr": 0.0001, "optimizer": "sgd", "ema_momentum": "None"}
    assert [chart.log_x for chart in figure.charts] == [False, True, False, False]


def test_trials_that_failed_or_missed_the_target_are_not_drawn(tmp_path):
    figure = search(
        tmp_path / "s",
        [2.0, None, 90.0],
        reached=(True, None, False),
        objective="seconds_to_target",
        config=TrainConfig(time_budget=9),
    )
    (chart,) = figure.charts
    assert chart.series[0].points == [Point(1, 2.0)]


# SVG


def elements(chart, tag):
    tree = ElementTree.fromstring(chart.svg())
    return tree.findall(f".//{{http://www.w3.org/2000/svg}}{tag}")


def texts(chart):
    return ["".join(element.itertext()) for element in elements(chart, "text")]


def places(chart):
    circles = elements(chart, "circle")
    return [(float(circle.get("cx")), float(circle.get("cy"))) for circle in circles]


def make_chart(*points, style="markers", **options):
    return Chart(title="Height", x_label="Width", series=[Series("s", points, style)], **options)


def test_points_are_at_their_numbers():
    chart = make_chart(Point(0, 10), Point(5, 20), Point(10, 30), from_zero=True)
    (left, low), (middle, half), (right, high) = places(chart)
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert half == pytest.approx((low + high) / 2, abs=0.1)
    assert left < right
    assert high < low  # upwards
    assert {"Height", "Width", "0", "10", "20", "30"} <= set(texts(chart))


def test_equal_factors_are_equal_distances_on_a_logarithmic_axis():
    chart = make_chart(*(Point(10**n, n) for n in range(4)), log_x=True)
    assert {"1", "10", "100", "1000"} <= set(texts(chart))
    across = [x for x, _ in places(chart)]
    steps = [after - before for before, after in itertools.pairwise(across)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.11)


def test_words_have_places_of_their_own():
    chart = make_chart(Point("sgd", 1), Point("adam", 2), Point("sgd", 3))
    across = [x for x, _ in places(chart)]
    assert across[0] == across[2] < across[1]
    assert {"sgd", "adam"} <= set(texts(chart))


def test_texts_beside_each_other_do_not_touch():
    batches = (8, 16, 32, 64, 128, 256, 512, 700)
    chart = make_chart(*(Point(n, n) for n in batches), log_x=True, ticks_at_values=True)
    assert {str(batch) for batch in batches[:-1]} <= set(texts(chart))
    labels = [
        (float(text.get("x")), len(text.text))
        for text in elements(chart, "text")
        if text.get("text-anchor") == "middle"
    ]
    for (left, long), (right, other) in itertools.pairwise(labels):
        assert right - left > 6 * (long + other) / 2


def test_words_are_escaped_and_points_have_their_numbers_as_hints():
    chart = Chart(title="<a>", x_label="&", series=[Series("<b>", [Point(1, 2, 1.5, 2.5)])])
    assert "<a>" in texts(chart)
    (hint,) = elements(chart, "title")
    assert hint.text == "<b>: 1, 2 (1.5 to 2.5)"


numbers = st.floats() | st.sampled_from([0.0, 5e-324, -1e300, 1e29, 1.0, 1.0 + 2**-52])


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(numbers, numbers), max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["joined", "markers"]),
)
def test_any_numbers_give_a_chart(pairs, log, from_zero, style):
    points = [Point(x, y, y, math.inf) for x, y in pairs]
    options = {"log_x": log, "from_zero": from_zero, "ticks_at_values": from_zero}
    text = make_chart(*points, style=style, **options).svg()
    ElementTree.fromstring(text)
    for number in re.findall(r' (?:c?[xy][12]?|points)="([^"]*)"', text):
        assert not re.search("nan|inf|e", number)


def test_a_legend_names_several_series_each_in_its_colour():
    chart = Chart(title="", x_label="", series=[Series("a", []), Series("b", [])])
    (first, blue), (second, orange) = Figure(caption="", charts=[chart, chart]).legend
    assert (first, second) == ("a", "b")
    assert blue != orange
    assert Figure(caption="", charts=[make_chart()]).legend == []


def test_an_epoch_without_a_value_has_no_point(tmp_path):
    history = write_run(tmp_path / "a", (0.5, 0.6)) / "history.csv"
    history.write_text(history.read_text().replace(",0.6,", ",,"))
    (series,) = curves_of(tmp_path / "a").charts[0].series
    assert series.points == [Point(1, 0.5)]
