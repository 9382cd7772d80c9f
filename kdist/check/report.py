"""The lines of which the text of a `CheckResult` consists."""

import math
import textwrap

from .comparison import Compared, Difference
from .finding import Finding

_MOST_SHOWN = 3
_WIDTH = 96
_MOST_ERROR = 90
_KINDS = {
    "initial weights": "initial weights",
    "loss": "loss",
    "state": "state",
    "weights": "weights",
    "optimizer": "optimizer",
    "metric": "metric",
    "evaluate": "evaluate",
    "predictions": "predictions",
    "copies": "copies of",
}


def stock_lines(compared: Compared) -> list[str]:
    """Say in short how stock TensorFlow compares, or that it cannot train the model at all."""
    if not compared.error:
        return training_lines(compared, shown=1)
    short = textwrap.shorten(compared.error, _MOST_ERROR, placeholder=" …")
    return wrapped(f"  {compared.name}: ", f"cannot train it ({short})")


def training_lines(compared: Compared, shown: int = _MOST_SHOWN) -> list[str]:
    """Say how a training compares: equal, or from which step on what differs."""
    head = f"  {compared.name}: "
    if compared.error:
        return wrapped(head + "fails: ", compared.error)
    if not compared.differences:
        return [head + "equal"]
    begins = compared.differences[0]
    others = [d for d in compared.differences if d.step == begins.step]
    lines = [head + f"differs from {_step(begins.step)} on"]
    lines += [f"    {_quantity(one)}: off by {_number(one.gap)}" for one in others[:shown]]
    more = len(compared.differences) - min(shown, len(others))
    if more:
        worst = max(compared.differences, key=lambda d: d.largest)
        lines += [f"    and {more} more; in the end by up to {_number(worst.largest)}"]
    return lines


def cause_lines(number: int, cause: Finding) -> list[str]:
    """Describe a cause: what it is, where, what shows it, and how to fix it."""
    kind = {"fault": "cause", "note": "note", "suspect": "perhaps"}[cause.level]
    lines = ["", *wrapped(f"  {kind} {number}: ", cause.text)]
    lines += [f"    in {cause.line}"] if cause.line else []
    lines += wrapped("    shown by: ", cause.shown_by)
    return lines + wrapped("    fix: ", cause.fix)


def unknown_lines(compared: Compared) -> list[str]:
    """Say where to look for a cause that is not known."""
    if not compared.differences:
        return ["  cause: not known"]
    begins = compared.differences[0]
    begin = f"not known. It begins at {_step(begins.step)} with {_quantity(begins)}: "
    return wrapped("  cause: ", begin + _HINTS[begins.kind])


_HINTS = {
    "initial weights": "look at how build makes its weights.",
    "loss": "the forward pass or the loss of this step differ, with the same weights before it.",
    "state": "a layer's state differs while the loss is equal: look at what this layer assigns.",
    "weights": "the loss is equal, so the gradients or the optimizer differ.",
    "optimizer": "the weights are equal, so look at the state of the optimizer.",
    "metric": "loss and weights are equal, so look at how this metric is computed.",
    "evaluate": "training is equal, so look at what the model does otherwise in evaluation.",
    "predictions": "training is equal, so look at what the model does otherwise in prediction.",
    "copies": "the replicas' copies of this variable differ: look at what assigns to it.",
}


def _quantity(one: Difference) -> str:
    layer = f" (layer {one.layer})" * bool(one.layer)
    kind = "" if one.kind == "loss" else f"{_KINDS[one.kind]} "
    return f"{kind}{one.name}{layer}"


def _step(step: int) -> str:
    return f"step {step}" if step else "the start"


def _number(value: float) -> str:
    return f"{value:.1g}" if math.isfinite(value) else "all (NaN, infinite, or of another shape)"


def wrapped(head: str, text: str) -> list[str]:
    """Break a text into lines, those after the first indented a little more."""
    indent = " " * (len(head) - len(head.lstrip()) + 2)
    return textwrap.wrap(
        head + text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
