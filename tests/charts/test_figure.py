import struct

import altair as alt
from kdist.charts.figure import Figure, Variant

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
