"""`Chart`: lines and points with their axes, as inline SVG in the colours of the page around it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

_WIDTH, _HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 26, 40
_DIGIT_WIDTH = 6.8  # of the axes' font
_MOST_LARGE_MARKERS = 60
# Beyond these limits, differences of numbers are infinite or 0.
_SMALLEST, _LARGEST = 1e-30, 1e30

# Every colour has a contrast above 3 with a white and with a dark page. The first four differ for
# readers with red-green blindness, too.
COLOURS = (
    *("#3b7dd8", "#d0661a", "#2a8f5c", "#c2559a"),
    *("#96782f", "#1f8fb0", "#8062d6", "#7b8496"),
)


@dataclass(frozen=True)
class Point:
    """A value with a bar from the minimum to the maximum of its repetitions."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of the same colour; a number that is not finite is not drawn.

    `style` is markers joined by a line, markers alone, or a line alone.
    """

    name: str
    points: Sequence[Point]
    style: Literal["joined", "markers", "line"] = "joined"

    @property
    def visible_points(self) -> list[Point]:
        """The points whose coordinates are finite."""
        return [point for point in self.points if _is_drawable(point.y) and _is_drawable(point.x)]


def _is_drawable(value: float | str) -> bool:
    return isinstance(value, str) or abs(value) < _LARGEST


class _Axis:
    """A range of numbers or a list of words, on a side of the chart.

    `ticks` has the pixel and the text of each tick.
    """

    def __init__(
        self,
        values: Iterable[float | str],
        ends: tuple[float, float],
        *,
        log: bool = False,
        from_zero: bool = False,
        at_values: bool = False,
    ) -> None:
        self._ends, self._log = ends, False
        self._words: list[str] = []
        found = list(dict.fromkeys(values)) or [0.0]
        if any(isinstance(value, str) for value in found):
            self._words = list(dict.fromkeys(map(_format_value, found)))
            self._low, self._high = -0.5, len(self._words) - 0.5
            self.ticks = [(self.pixel_of(word), word) for word in self._words]
            return
        numbers = [float(value) for value in found]
        self._log = log and min(numbers) > _SMALLEST
        low, high = min(numbers), max(numbers)
        if high - low < _SMALLEST:
            room = abs(low) / 2 or 1.0
            low, high = low - room, high + room
        low, high = self._scaled(low), self._scaled(high)
        margin = 0.04 * (high - low)
        self._low = 0.0 if from_zero and low >= 0 else low - margin
        self._high = high + margin
        is_whole = all(number.is_integer() for number in numbers)
        places = sorted(numbers) if at_values else self._round_numbers(is_whole)
        self.ticks = [(self.pixel_of(place), _format_value(place)) for place in places]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def pixel_of(self, value: float | str) -> float:
        """Return the pixel of a value; a number beyond an end of the axis is drawn at that end."""
        number = (
            self._words.index(_format_value(value)) if self._words else self._scaled(float(value))
        )
        share = (number - self._low) / (self._high - self._low)
        start, end = self._ends
        return start + min(max(share, 0.0), 1.0) * (end - start)

    def _round_numbers(self, is_whole: bool) -> list[float]:
        """Return about six round numbers within the ends."""
        span = self._high - self._low
        if self._log:
            powers = range(math.floor(self._low), math.ceil(self._high), math.ceil(span / 6))
            numbers = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
            numbers = numbers[:: 3 if span > 2 else 1]
            return [number for number in numbers if self._low <= math.log10(number) <= self._high]
        rough = span / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= rough)
        step = max(step, 1.0) if is_whole else step
        steps = range(math.ceil(self._low / step), math.floor(self._high / step) + 1)
        return [float(f"{number * step:.12g}") for number in steps]


def _format_value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of one or several series.

    Attributes:
        title: Heading, which names the vertical axis.
        log_x: Whether the horizontal axis is logarithmic; ignored unless all numbers are above 0.
        from_zero: Whether the vertical axis begins at 0.
        ticks_at_values: Whether the horizontal axis has a tick at each value.
        range_y: The ends of the vertical axis; by default the minimum and maximum of the values.
    """

    title: str
    x_label: str
    series: Sequence[Series]
    log_x: bool = False
    from_zero: bool = False
    ticks_at_values: bool = False
    range_y: tuple[float, float] | None = None

    def svg(self) -> str:
        """Return the chart as an SVG element."""
        points = [point for series in self.series for point in series.visible_points]
        x = _Axis(
            (point.x for point in points),
            (_LEFT, _WIDTH - _RIGHT),
            log=self.log_x,
            at_values=self.ticks_at_values,
        )
        values = [value for point in points for value in (point.low, point.y, point.high)]
        y = _Axis(
            self.range_y
            or [value for value in values if value is not None and _is_drawable(value)],
            (_HEIGHT - _BOTTOM, _TOP),
            from_zero=self.from_zero,
        )
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
            f' aria-label="{escape(f"{self.title} by {self.x_label}")}" fill="currentColor"'
            ' font-family="system-ui, sans-serif" font-size="11">',
            f'<text x="0" y="12" font-weight="600">{escape(self.title)}</text>',
            f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">'
            f"{escape(self.x_label)}</text>",
            *_draw_ticks(x, y),
        ]
        for number, series in enumerate(self.series):
            parts += _draw_series(series, COLOURS[number % len(COLOURS)], x, y)
        return "\n".join([*parts, "</svg>"])


def _draw_ticks(x: _Axis, y: _Axis) -> Iterator[str]:
    for at, label in y.ticks:
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
            ' stroke="currentColor" opacity="0.15"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )
    free = 0.0  # right end of the last label; labels that would overlap are left out
    for at, label in x.ticks:
        half = len(label) * _DIGIT_WIDTH / 2
        middle = min(max(at, half), _WIDTH - half)
        if middle - half >= free:
            free = middle + half + 4
            yield (
                f'<text x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 15}"'
                f' text-anchor="middle">{escape(label)}</text>'
            )


def _draw_series(series: Series, colour: str, x: _Axis, y: _Axis) -> Iterator[str]:
    points = [(x.pixel_of(point.x), y.pixel_of(point.y), point) for point in series.visible_points]
    if series.style != "markers":
        path = " ".join(f"{x_pixel:.1f},{y_pixel:.1f}" for x_pixel, y_pixel, _ in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
    if series.style == "line":
        return
    radius = 3 if len(points) <= _MOST_LARGE_MARKERS else 1.5
    for x_pixel, y_pixel, point in points:
        hint = f"{series.name}: {_format_value(point.x)}, {_format_value(point.y)}"
        if point.low is not None and point.high is not None:
            hint += f" ({_format_value(point.low)} to {_format_value(point.high)})"
            yield (
                f'<line x1="{x_pixel:.1f}" x2="{x_pixel:.1f}"'
                f' y1="{y.pixel_of(point.low):.1f}" y2="{y.pixel_of(point.high):.1f}"'
                f' stroke="{colour}" stroke-width="3" opacity="0.5"/>'
            )
        yield (
            f'<circle cx="{x_pixel:.1f}" cy="{y_pixel:.1f}" r="{radius}" fill="{colour}">'
            f"<title>{escape(hint)}</title></circle>"
        )


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Charts of the same series with a common legend; a chart without points is not drawn."""

    caption: str
    charts: Sequence[Chart]

    @property
    def visible_charts(self) -> list[Chart]:
        """The charts that have points."""
        return [
            chart for chart in self.charts if any(series.visible_points for series in chart.series)
        ]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The name and colour of each series; empty for a single series."""
        names = list(dict.fromkeys(part.name for chart in self.charts for part in chart.series))
        if len(names) < 2:
            return []
        return [(name, COLOURS[at % len(COLOURS)]) for at, name in enumerate(names)]


def draw_learning_rates(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    *,
    suggestion: float,
) -> Figure:
    """Draw a range test: the loss of each batch, their running average, and the suggestion."""
    # The scale excludes the last tenth: an exploding loss would flatten the curve.
    average = [value for value in smoothed if math.isfinite(value)]
    top = max(average[: max(len(average) * 9 // 10, 1)], default=1.0)
    bottom = min((value for value in losses if math.isfinite(value)), default=0.0)
    chart = Chart(
        title="Loss",
        x_label="Learning rate",
        series=[
            Series("loss of a batch", list(map(Point, rates, losses)), "markers"),
            Series("running average", list(map(Point, rates, smoothed)), "line"),
            Series(
                f"suggested: {suggestion:.2g}",
                [Point(suggestion, bottom), Point(suggestion, top)],
                "line",
            ),
        ],
        log_x=True,
        range_y=(bottom, top),
    )
    return Figure(
        caption="Points: the loss of each batch; the learning rate rises from batch to batch."
        " Line: the running average of the losses. Suggested: a tenth of the rate at the lowest"
        " average.",
        charts=[chart],
    )
