"""`Evaluation`: the result of a saved model, as a line of a table."""

import dataclasses

_WIDTHS = (5, 6, 7, 8, 8, 10)
_HEADING = ("epoch", "step", "images", "accuracy", "loss", "weights", "file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How well a saved model classifies the test images.

    Attributes:
        epoch: The epoch that the model is from, counted from 1; `None` if unknown.
        step: Steps of this epoch that were trained; `None` for its end, or if unknown.
        images: Number of images, each of which counts once.
        accuracy: Share of the images whose most probable class is the right one, of 0 to 1; also
            known as precision @ 1.
        loss: The loss that the model is trained with, weight penalties included: `val_loss`.
        weights: `"averaged"`, `"trained"`, or `"saved"` if it is unknown which of these a file has.
        file: Name of the file.
    """

    epoch: int | None
    step: int | None
    images: int
    accuracy: float
    loss: float
    weights: str
    file: str

    def __str__(self) -> str:
        at_end = "end" if self.epoch is not None else "-"
        return _line(
            "-" if self.epoch is None else f"{self.epoch}",
            at_end if self.step is None else f"{self.step}",
            f"{self.images}",
            f"{self.accuracy:.4f}",
            f"{self.loss:.4f}",
            self.weights,
            self.file,
        )


def heading() -> str:
    """Return the heading of a table of evaluations."""
    return _line(*_HEADING)


def _line(*parts: str) -> str:
    padded = map(str.rjust, parts, _WIDTHS)
    return "  ".join([*padded, parts[-1]])
