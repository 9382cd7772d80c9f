"""Charts of runs."""

import itertools

import pytest
from kdist.charts.runs import (
    ReferenceLine,
    alternating_dashes,
    coinciding,
    curve_figures,
    epoch_rows,
    nested_sizes,
    run_speeds,
    speed_rows,
)
from kdist.runs.record import read_run
from report_folders import write_run


@pytest.fixture
def runs(tmp_path):
    """Makes runs, each of (name, accuracies)."""

    def make(*curves, **options):
        return [
            read_run(write_run(tmp_path / name, accuracies, **options))
            for name, accuracies in curves
        ]

    return make


def figures_of(runs):
    return {one.id: one for one in curve_figures(runs, [run.name for run in runs])}


def spec_of(figure, label="Validation accuracy"):
    (variant,) = [one for one in figure.variants if one.label == label]
    return variant.chart.to_dict()


def layers(spec, mark):
    return [one for one in spec["layer"] if one["mark"]["type"] == mark]


def test_curves_that_lie_on_each_other_take_turns(runs):
    found = runs(("a", (0.5, 0.9)), ("b", (0.5, 0.9)), ("c", (0.4, 0.8)))
    figure = figures_of(found)["learning-curves"]
    (lines,) = layers(spec_of(figure), "line")
    a, b, c = lines["encoding"]["strokeDash"]["scale"]["range"]
    assert a != b
    assert c == [1, 0]
    (points,) = layers(spec_of(figure), "point")
    (size,) = [one["calculate"] for one in points["transform"] if "calculate" in one]
    assert '"a": ' in size
    assert '"c": ' not in size
    assert figure.caption.endswith("take turns along one line: “a” and “b”.")
    # They have the same learning rate too, each of them.
    (lines,) = layers(spec_of(figure, "Learning rate"), "line")
    dashes = lines["encoding"]["strokeDash"]["scale"]["range"]
    assert len({tuple(dash) for dash in dashes}) == 3


def test_curves_apart_are_full_lines(runs):
    figure = figures_of(runs(("a", (0.5, 0.9)), ("c", (0.4, 0.8))))["learning-curves"]
    (lines,) = layers(spec_of(figure), "line")
    assert lines["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [1, 0]]
    assert "take turns" not in figure.caption


def test_equal_accuracies_at_other_times_do_not_lie_on_each_other(runs, tmp_path):
    slow, fast = runs(("slow", (0.5, 0.9)), ("fast", (0.5, 0.9)))
    history = tmp_path / "fast" / "history.csv"
    history.write_text(history.read_text().replace("10.0", "5.0").replace("20.0", "9.0"))
    figures = figures_of([slow, read_run(tmp_path / "fast")])
    (by_time,) = layers(spec_of(figures["accuracy-over-time"]), "line")
    assert by_time["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [1, 0]]
    (by_epoch,) = layers(spec_of(figures["learning-curves"]), "line")
    assert by_epoch["encoding"]["strokeDash"]["scale"]["range"] != [[1, 0], [1, 0]]


def test_runs_of_one_epoch_are_a_value_each_beside_their_names(runs):
    figure = figures_of(runs(("a", (0.7311,)), ("b", (0.6,))))["learning-curves"]
    spec = spec_of(figure)
    assert [one["mark"]["type"] for one in spec["layer"]] == ["point", "text"]
    points, words = spec["layer"]
    assert points["encoding"]["y"]["field"] == words["encoding"]["y"]["field"] == "run"
    assert words["encoding"]["text"]["field"] == "val_accuracy"
    assert figure.caption == "One epoch per run: a point each, and no curve."
    longer = figures_of(runs(("c", (0.5,)), ("d", (0.5, 0.6))))["learning-curves"]
    assert layers(spec_of(longer), "line")


def test_the_target_line_says_what_it_is(runs):
    figure = figures_of(runs(("a", (0.5, 0.9)), target_accuracy=0.87))["accuracy-over-time"]
    spec = spec_of(figure)
    (words,) = layers(spec, "text")
    values = next(rows for rows in spec["datasets"].values() if "label" in rows[0])
    assert values == [{"at": 0.87, "label": "target 0.87"}]
    assert words["encoding"]["text"]["field"] == "label"
    assert ReferenceLine.of_target(None) is None


def test_the_speed_of_a_first_epoch_is_hollow(runs):
    cold, warm = runs(("cold", (0.5,)), ("warm", (0.5, 0.6, 0.7)))
    for shown, solid, hollow in (
        ([cold], False, True),
        ([warm], True, False),
        ([cold, warm], True, True),
    ):
        (figure,) = run_speeds(shown, [run.name for run in shown])
        assert ("Point: median of the epochs after the first" in figure.caption) is solid
        assert ("Hollow point: the first epoch" in figure.caption) is hollow
    rows = speed_rows([cold, warm])
    assert [row["warm"] for row in rows] == [False, True]
    assert [row["of"] for row in rows] == ["the first epoch alone", "2 epochs after the first"]


def test_an_epoch_without_a_value_has_a_row_without_it(runs, tmp_path):
    runs(("a", (0.5, 0.6)))
    history = tmp_path / "a" / "history.csv"
    history.write_text(history.read_text().replace(",0.6,", ",,"))
    rows = epoch_rows([read_run(tmp_path / "a")])
    assert [row["val_accuracy"] for row in rows] == [0.5, None]


def test_curves_that_lie_on_each_other_are_found():
    curves = {
        "one": {1: 0.5, 2: 0.9},
        "same": {1: 0.5, 2: 0.9001},  # a pixel is wider
        "shorter": {1: 0.5},
        "other": {1: 0.5, 2: 0.8},
        "later": {3: 0.1},  # no epoch in common
    }
    assert coinciding(curves) == [["one", "same", "shorter"]]
    assert coinciding({"flat": {1: 0.1, 2: 0.1}, "too": {1: 0.1, 2: 0.1}}) == [["flat", "too"]]
    assert coinciding({"empty": {}, "too": {}}) == []
    assert coinciding({}) == []


@pytest.mark.parametrize("number", [2, 3, 10])
def test_each_curve_has_its_turn_along_the_line(number):
    names = [f"run {n}" for n in range(number)]
    dashes = alternating_dashes([names])
    period = {sum(dash) for dash in dashes.values()}
    assert len(period) == 1
    # A dash array is drawn and skipped in turn, as in SVG: here (begin, end) of what is drawn.
    drawn = []
    for name in names:
        at, parts = 0.0, []
        for index, length in enumerate(dashes[name]):
            if index % 2 == 0 and length:
                parts.append((at, at + length))
            at += length
        drawn += parts
    assert len(drawn) == number
    assert [begin for begin, _ in drawn] == [0.0, *(end for _, end in drawn[:-1])]
    assert drawn[-1][1] == period.pop()


@pytest.mark.parametrize("number", [2, 10])
def test_points_at_one_place_are_rings(number):
    sizes = list(nested_sizes([[f"run {n}" for n in range(number)]], size=45.0).values())
    diameters = [size**0.5 for size in sizes]
    rings = [(one - two) / 2 for one, two in itertools.pairwise(diameters)]
    assert min(rings) >= 0.9 - 1e-9  # a pixel or so
    assert diameters[-1] == pytest.approx(45**0.5)
    assert diameters[0] < 30
