"""The facts of a run that wrote no `summary.json`, from its settings and its epochs so far."""

from collections.abc import Mapping, Sequence
from typing import Any

# Columns of `history.csv` that a summary has too.
_FACTS = ("replicas", "global_batch", "learning_rate", "seconds", "val_accuracy")


def summary_so_far(
    settings: Mapping[str, Any], epochs: Sequence[Mapping[str, float | None]]
) -> dict[str, Any]:
    """Put together what a summary would say so far; what is not known is missing.

    Args:
        settings: The content of `config.json`.
        epochs: The lines of `history.csv`.

    Example:
        >>> summary_so_far({"replicas": 2, "batch_size": 32}, [])
        {'epochs': 0, 'replicas': 2, 'global_batch': 64}
        >>> summary_so_far({}, [{"epoch": 1, "seconds": 9.5, "replicas": 4}])
        {'epochs': 1, 'replicas': 4, 'seconds': 9.5}
    """
    summary: dict[str, Any] = {"epochs": len(epochs)}
    replicas, batch = settings.get("replicas"), settings.get("batch_size")
    if isinstance(replicas, int):
        summary["replicas"] = replicas
        if isinstance(batch, int):
            summary["global_batch"] = replicas * batch
    for name in _FACTS:
        known = [epoch[name] for epoch in epochs if epoch.get(name) is not None]
        if known:
            summary[name] = known[-1]
    return summary
