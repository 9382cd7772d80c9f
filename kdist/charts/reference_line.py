"""A horizontal line across a chart, with words: a target, a threshold."""

from dataclasses import dataclass

import altair as alt


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal line across a chart.

    Attributes:
        at: Its height, in the unit of the axis.
        label: The words above it.
    """

    at: float
    label: str

    @classmethod
    def of_target(cls, target: float | None) -> "ReferenceLine | None":
        """The line of a target accuracy, where there is one."""
        return None if target is None else cls(target, f"target {target:g}")

    def layers(self) -> list[alt.Chart]:
        """The line and its words, to be drawn below the curves."""
        chart = alt.Chart(alt.InlineData(values=[{"at": self.at, "label": self.label}]))
        chart = chart.encode(y="at:Q")
        # At the left, where curves have yet to rise.
        words = chart.mark_text(align="left", baseline="bottom", dx=4, dy=-3)
        return [
            chart.mark_rule(strokeDash=[5, 4]),
            words.encode(x=alt.value(0), text="label:N"),
        ]
