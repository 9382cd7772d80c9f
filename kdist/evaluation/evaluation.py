"""`Evaluation`: the result of a saved model, as a line of a table."""

import dataclasses
from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a saved model is on the test data.

    Attributes:
        epoch: The epoch that the model is from, counted from 1; `None` if unknown.
        step: Steps of this epoch that were trained; `None` for its end, or if unknown.
        images: Number of images, each of which counts once; for your own model the number of
            samples, or `None` if it is unknown.
        accuracy: Share of the images whose most probable class is correct, from 0 to 1; also known
            as precision @ 1; `None` for your own model without this metric.
        loss: The loss that the model is trained with, weight penalties included: `val_loss`.
        weights: `"averaged"`, `"trained"`, or `"saved"` if it is unknown which of these the file
            contains.
        file: Name of the file.
        metrics: The other metrics of your own model, by name.
    """

    epoch: int | None
    step: int | None
    images: int | None
    accuracy: float | None
    loss: float | None
    weights: str
    file: str
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return _line(self._cells().items())

    def heading(self) -> str:
        """Return the heading of a table of such evaluations."""
        return _line((name, name) for name in self._cells())

    def _cells(self) -> dict[str, str]:
        at_end = "end" if self.epoch is not None else "-"
        results = {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}
        known = {name: f"{value:.4f}" for name, value in results.items() if value is not None}
        return {
            "epoch": "-" if self.epoch is None else f"{self.epoch}",
            "step": at_end if self.step is None else f"{self.step}",
            "images": "-" if self.images is None else f"{self.images}",
            **known,
            "weights": self.weights,
            "file": self.file,
        }


_LEAST_WIDTHS = {"epoch": 5, "step": 6, "images": 7, "weights": 10}
_LEAST_WIDTH = 8  # of a metric


def _line(cells: Iterable[tuple[str, str]]) -> str:
    *columns, (_, last) = cells
    widths = (max(len(name), _LEAST_WIDTHS.get(name, _LEAST_WIDTH)) for name, _ in columns)
    padded = (text.rjust(width) for (_, text), width in zip(columns, widths, strict=True))
    return "  ".join([*padded, last])
