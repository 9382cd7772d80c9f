import math

import pytest
from kdist.charts.series import MeasuredAxis, series_chart, series_names, with_ends


def axis(values, series=("a", "b", "c"), *, log):
    return MeasuredAxis(column="x", title="X, images", values=values, series=series, log=log)


@pytest.mark.parametrize("values", [[8, 16, 700], [8]])
def test_series_stand_beside_each_other_on_a_logarithmic_axis(values):
    places = [axis(values, log=True).place(8, name) for name in "abc"]
    assert [place["x"] for place in places] == [8, 8, 8]
    low, middle, high = (math.log(place["x_at"]) for place in places)
    assert middle == pytest.approx(math.log(8))
    assert high - middle == pytest.approx(middle - low)
    span = math.log(700 / 8 if len(values) > 1 else 2)
    assert 0 < high - low < span / 20


def test_series_stand_beside_each_other_on_a_linear_axis():
    places = [axis([1, 9], ("a", "b"), log=False).place(4, name)["x_at"] for name in "ab"]
    assert sum(places) / 2 == pytest.approx(4)
    assert 0 < places[1] - places[0] < 8 / 20


def test_series_are_named_after_what_varies():
    settings = [
        {"replicas": replicas, "lr_rule": rule, "mode": "weak"}
        for replicas in (1, 2)
        for rule in ("linear", "sqrt")
    ]
    assert series_names(settings, ["mode", "lr_rule", "replicas"]) == [
        "rule linear, 1 replica",
        "rule sqrt, 1 replica",
        "rule linear, 2 replicas",
        "rule sqrt, 2 replicas",
    ]
    assert series_names(settings[:1], ["lr_rule"]) == ["measured"]


def test_what_is_not_known_is_not_drawn():
    spread = {"median": 0.5, "low": None, "high": math.inf}
    assert with_ends("y", spread, 1e3) == {"y": 500, "y_low": None, "y_high": None}
    assert with_ends("y", None) == {"y": None, "y_low": None, "y_high": None}


def chart(medians, **options):
    made = series_chart("id", axis([1, 2], log=False), "y", "Y, seconds", medians, **options)
    return made.to_dict()


def layers(medians, **options):
    return chart(medians, **options)["layer"]


def test_bars_go_to_the_ends_that_are_known():
    medians = [
        {"y": 1.0, "y_low": 0.5, "y_high": None},
        {"y": None, "y_low": None, "y_high": 3.0},  # no median to begin at
    ]
    found = layers(medians)
    assert [layer["mark"]["type"] for layer in found] == ["rule", "point"]
    assert found[0]["encoding"]["y2"]["field"] == "y_low"
    assert found[0]["transform"] == [{"filter": "isValid(datum.y_low)"}]


def test_a_layer_without_anything_to_draw_is_left_out():
    nothing = [{"y": None, "y_low": None, "y_high": None}]
    assert [one["mark"]["type"] for one in layers(nothing, joined=True, points=True)] == ["point"]


@pytest.mark.parametrize(("value", "align"), [(1.1, "left"), (5, "right")])
def test_a_mark_is_written_towards_the_middle(value, align):
    found = chart([{"y": 1.0, "y_low": None, "y_high": None}], mark=(value, "here"))
    *_, line, text = found["layer"]
    assert line["mark"]["type"] == "rule"
    assert list(found["datasets"].values()) == [[{"x_at": value, "text": "here"}]]
    assert text["mark"]["align"] == align
