"""Causes for which a training on several replicas ends in an error."""

from ...user_model.code_errors import OWN_STRATEGY
from ..evidence import Evidence
from ..finding import Finding
from .draws import python_while_tracing


def refused(evidence: Evidence) -> Finding | None:
    """The model is refused: kdist does not train it, and says why."""
    record = evidence.received.record
    if not record.is_refused:
        return None
    what, _, fix = record.error.partition(": ")
    return Finding(
        name="refused",
        text=f"kdist cannot train this on several replicas: {what}",
        shown_by="its error message",
        fix=fix or what,
        line=record.line,
    )


def strategy_in_build(evidence: Evidence) -> Finding | None:
    """A `build` that makes a strategy of its own."""
    record = evidence.received.record
    what, _, fix = OWN_STRATEGY.partition(": ")
    if OWN_STRATEGY not in record.error:
        return None
    return Finding(
        name="strategy_in_build", text=what, shown_by="its error", fix=fix, line=record.line
    )


def crashed(evidence: Evidence) -> list[Finding]:
    """The training fails on several replicas, though not on one."""
    record = evidence.received.record
    if not record.error or record.is_refused or OWN_STRATEGY in record.error:
        return []
    if evidence.traces is not None and evidence.traces[0].drew:
        # With other draws the replicas compute other things, which TensorFlow cannot combine.
        return python_while_tracing(evidence)
    return [
        Finding(
            name="crashed",
            text=f"it trains on one replica, but on {record.replicas} it fails: {record.error}",
            shown_by="its error",
            fix="see the error: such as a tensor that is kept from one step to the next, or a size"
            " that is written as a number",
            line=record.line,
        )
    ]
