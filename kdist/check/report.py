"""The text of a `CheckResult`."""

import math
import textwrap

from .comparison import Difference
from .finding import Finding
from .result import CheckResult, Compared

_MOST_SHOWN = 3
_WIDTH = 96
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


def report_text(result: CheckResult) -> str:
    """Return what a user reads: equal or not, from where on, why, and how to fix it."""
    lines = ["equal" if result.equal else "NOT EQUAL"]
    lines[0] += f": {result.compared}"
    lines += _wrapped("  ", f"{result.batches}; {result.precision}")
    for one in result.trainings:
        lines += _training_lines(one)
    if result.stock is not None:
        lines += _training_lines(result.stock, shown=1)
    for number, cause in enumerate(result.causes, 1):
        lines += _cause_lines(number, cause)
    failed = [one for one in result.trainings if not one.is_equal]
    if failed and not result.causes:
        lines += ["", *_unknown_lines(failed[0])]
    lines += [line for note in result.notes for line in _wrapped("note: ", note)]
    return "\n".join(lines)


def _training_lines(compared: Compared, shown: int = _MOST_SHOWN) -> list[str]:
    head = f"  {compared.name}: "
    if compared.error:
        return _wrapped(head + "fails: ", compared.error)
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


def _cause_lines(number: int, cause: Finding) -> list[str]:
    kind = "cause" if cause.level == "fault" else "note"
    lines = ["", *_wrapped(f"  {kind} {number}: ", cause.text)]
    lines += [f"    in {cause.line}"] if cause.line else []
    lines += _wrapped("    shown by: ", cause.shown_by)
    return lines + _wrapped("    fix: ", cause.fix)


def _unknown_lines(compared: Compared) -> list[str]:
    if not compared.differences:
        return ["  cause: not known"]
    begins = compared.differences[0]
    begin = f"not known. It begins at {_step(begins.step)} with {_quantity(begins)}: "
    return _wrapped("  cause: ", begin + _HINTS[begins.kind])


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


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * (len(head) - len(head.lstrip()) + 2)
    return textwrap.wrap(
        head + text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
