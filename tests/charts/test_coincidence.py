import itertools

import pytest
from kdist.charts.coincidence import alternating_dashes, coinciding, nested_sizes


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
