"""Causes in metrics."""

from typing import Any

import keras

from ..evidence import Evidence
from ..finding import Finding
from ..layer_calls import kept_variables
from ..precision import keras_in
from ..source_lines import line_of_definition


def metric_state(evidence: Evidence) -> list[Finding]:
    """A metric whose state is no sum over the samples, such as the largest value."""
    model = evidence.one.model
    if model is None:
        return []
    wrong = {d.name for d in evidence.differences if d.kind in ("metric", "evaluate")}
    found = []
    for metric in _metrics(model.metrics):
        is_users = line_of_definition(type(metric))
        if metric.name not in wrong or not is_users:
            continue
        merges = hasattr(metric, "merge_replicas")
        adds_up = _adds_up(evidence, metric)
        if adds_up or (merges and _forward_differs(evidence)):
            continue
        found.append(
            Finding(
                name="metric_state",
                text=f"merge_replicas of the metric {metric.name} does not make the state for all"
                " samples from those of the replicas"
                if merges
                else f"the state of the metric {metric.name} is no sum over the samples, so the"
                " states of the replicas do not add up to it",
                shown_by="its states for two halves of a batch do not add up to that for the whole"
                if adds_up is False and not merges
                else "only what it computes differs",
                fix="keep sums over the samples in its variables, such as a total and a count, and"
                " divide them in result(); only for a largest or smallest value, give it a method"
                " merge_replicas(self, variable, values): return keras.ops.max(values, axis=0)",
                line=is_users,
            )
        )
    return found


def _forward_differs(evidence: Evidence) -> bool:
    """Whether something else than metrics differs, which metrics would follow."""
    return bool({d.kind for d in evidence.differences} - {"metric", "evaluate"})


def _metrics(metrics: Any) -> list[keras.metrics.Metric]:
    return [
        one
        for metric in metrics
        for one in [metric, *_metrics(getattr(metric, "metrics", None) or [])]
    ]


def _adds_up(evidence: Evidence, metric: keras.metrics.Metric) -> bool | None:
    """Whether the states for halves of a batch add up to that for the whole; `None`: unknown."""
    import numpy as np

    model, size = evidence.one.model, evidence.plan.batches.batch_size // 2 * 2

    def state(start: int, stop: int) -> list[Any]:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(evidence.plan.batches.rows(start, stop))
        with keras_in(evidence.plan.asked), kept_variables(model):
            metric.reset_state()
            metric.update_state(y, model(x, training=False), sample_weight=weight)
            return [variable.numpy() for variable in metric.variables]

    try:
        whole, first, second = state(0, size), state(0, size // 2), state(size // 2, size)
    except Exception:  # it is updated in a way of the model's own
        return None
    limit = evidence.precision.metrics_tolerance
    return all(
        np.allclose(w, a + b, rtol=limit, atol=limit)
        for w, a, b in zip(whole, first, second, strict=True)
    )
