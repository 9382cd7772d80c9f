import dataclasses
import doctest
import math

import pytest
from kdist.errors import UserError
from kdist.performance import links
from kdist.performance.links import LINKS, Link, choose_link


def test_the_presets_with_their_sources():
    figures = {
        name: (link.latency_seconds * 1e6, link.bytes_per_second / 1e9)
        for name, link in LINKS.items()
    }
    assert figures == {
        "pcie": (pytest.approx(5.7), 12),
        "nvlink": (pytest.approx(3.4), 230),
        "ethernet": (pytest.approx(9.6), 12),
    }
    for link in LINKS.values():
        assert "bandwidth: " in link.source
        assert "latency: " in link.source


@pytest.mark.parametrize(
    ("name", "line_rate"),
    [("pcie", 8e9 * 16 * 128 / 130 / 8), ("nvlink", 12 * 25e9), ("ethernet", 100e9 / 8)],
)
def test_a_preset_is_what_a_link_reaches_not_what_it_is_sold_as(name, line_rate):
    """16 lanes of 8 GT/s in 128b/130b; 12 NVLinks of 25 GB/s; 100 Gb/s."""
    assert 0.7 * line_rate < LINKS[name].bytes_per_second < line_rate


def test_a_preset_alone_is_itself():
    assert choose_link("nvlink") is LINKS["nvlink"]


def test_a_stated_figure_replaces_the_presets():
    preset = LINKS["ethernet"]
    slower = choose_link("ethernet", bytes_per_second=3e9)
    assert slower.bytes_per_second == 3e9
    assert slower.latency_seconds == preset.latency_seconds
    assert slower.source == f"stated bandwidth; else {preset.source}"
    assert choose_link("ethernet", latency_seconds=0).latency_seconds == 0


def test_two_stated_figures_leave_nothing_of_the_presets_source():
    stated = choose_link("pcie", latency_seconds=1e-6, bytes_per_second=24e9)
    assert (stated.latency_seconds, stated.bytes_per_second) == (1e-6, 24e9)
    assert stated.name == "PCIe 3.0 x16, stated latency and bandwidth"
    assert stated.source == "stated by the caller"


def test_an_unknown_link_is_refused_by_naming_the_known_ones():
    with pytest.raises(UserError, match="link is 'infiniband'.*pcie, nvlink, ethernet: pass the"):
        choose_link("infiniband")


@pytest.mark.parametrize("latency", [-1e-9, math.inf, math.nan, "5us", None, True])
def test_a_latency_that_is_none_is_refused(latency):
    with pytest.raises(UserError, match="latency_seconds is .*5e-6 for five microseconds"):
        Link(name="mine", latency_seconds=latency, bytes_per_second=1e9)


@pytest.mark.parametrize("bandwidth", [0, -1e9, math.nan, "12GB", None, True])
def test_a_bandwidth_that_is_none_is_refused(bandwidth):
    with pytest.raises(UserError, match="bytes_per_second is .*12e9 for 12 GB/s"):
        Link(name="mine", latency_seconds=0, bytes_per_second=bandwidth)


def test_a_link_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LINKS["pcie"].bytes_per_second = 24e9


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(links).failed == 0
