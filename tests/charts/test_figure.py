"""Figures, and the style that all charts share."""

import itertools
import math
import re
import struct

import altair as alt
import numpy as np
import pytest
import vl_convert
from kdist.charts.figure import DARK, LIGHT, Figure, Variant, line_dash, whole_number_axis

DATA = {"rows": [{"x": 1, "y": 2}, {"x": 2, "y": 3}]}


def figure(views, **options):
    chart = alt.Chart(alt.NamedData(name="rows")).mark_point().encode(x="x:Q", y="y:Q")
    return Figure(
        id="one",
        title="Title",
        caption="A caption.",
        alt="",
        variants=[Variant(label=f"View {n}", chart=chart) for n in range(views)],
        **options,
    )


def size(png):
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def test_all_views_are_in_one_picture():
    one, two, five = (size(figure(views).png(DATA)) for views in (1, 2, 5))
    assert two[0] > one[0]
    assert five[0] == two[0]  # two stand side by side
    assert five[1] > 2 * two[1]
    assert size(figure(5, columns=5).png(DATA))[0] > 2 * two[0]


def test_a_long_caption_makes_a_picture_higher_not_wider():
    short, long = (size(figure(1).png(DATA, note=note)) for note in ("", "word " * 100))
    assert long[0] == short[0]
    assert long[1] > short[1]


def test_a_file_for_each_view():
    assert list(figure(1).pngs(DATA)) == ["one.png"]
    assert list(figure(2).pngs(DATA)) == ["one-view-0.png", "one-view-1.png"]


CARDS = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#1a1e27")}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def linear(colour):
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour):
    x, y, z = TO_XYZ @ linear(colour) / np.array([0.95047, 1.0, 1.08883])
    f = [
        value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29
        for value in (x, y, z)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def ciede2000(one, other):
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    dh = (h2 - h1 + 180) % 360 - 180
    big_dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(dh / 2))
    mean_l, mean_c, mean_h = (l1 + l2) / 2, (c1 + c2) / 2, (h1 + dh / 2) % 360
    t = 1 - 0.17 * math.cos(math.radians(mean_h - 30)) + 0.24 * math.cos(math.radians(2 * mean_h))
    t += 0.32 * math.cos(math.radians(3 * mean_h + 6)) - 0.20 * math.cos(
        math.radians(4 * mean_h - 63)
    )
    sl = 1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2)
    sc, sh = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    turn = 30 * math.exp(-(((mean_h - 275) / 25) ** 2))
    rt = -2 * math.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * math.sin(math.radians(2 * turn))
    dl, dc, dh = (l2 - l1) / sl, (c2 - c1) / sc, big_dh / sh
    return math.sqrt(dl**2 + dc**2 + dh**2 + rt * dc * dh)


def test_the_formula_gives_what_its_authors_computed():
    one, other = (50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485)
    assert ciede2000(one, other) == pytest.approx(2.0425, abs=1e-4)
    one, other = (22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619)
    assert ciede2000(one, other) == pytest.approx(2.0373, abs=1e-4)


@pytest.mark.parametrize("page", CARDS)
def test_ten_colours_differ_and_stand_out_from_the_page(page):
    colours, card = CARDS[page]
    assert len(colours) == 10
    assert min(contrast(colour, card) for colour in colours) >= 3
    pairs = itertools.combinations(map(lab, colours), 2)
    assert min(ciede2000(one, other) for one, other in pairs) > 19.5


@pytest.mark.parametrize("values", [[0, 1], [0, 1, 2], [1, 2], [7]])
def test_whole_numbers_are_labelled_once(values):
    x = alt.X("x:Q", axis=whole_number_axis(), scale=alt.Scale(zero=False, nice=False))
    data = alt.Data(values=[{"x": value} for value in values])
    chart = alt.Chart(data, width=400).mark_point().encode(x=x)
    labels = re.findall(r">([^<>]+)</text>", vl_convert.vegalite_to_svg(chart.to_dict()))
    assert labels == [*map(str, values), "x"]


def test_beyond_ten_runs_lines_have_dashes():
    names = [f"run {n}" for n in range(21)]
    dashes = line_dash("run", names, special={"run 3": [5, 5]}).to_dict()["scale"]["range"]
    assert dashes[:10] == [[1, 0]] * 3 + [[5, 5]] + [[1, 0]] * 6
    assert dashes[0] != dashes[10] != dashes[20] != dashes[0]
