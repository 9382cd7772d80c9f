"""What runs were made with: where they differ, and what they share."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..charts.formatting import setting
from ..runs.run_record import RunRecord
from ..training.settings import FOLDERS

_FACTS = (
    "global_batch",
    "learning_rate",
    "parameters",
    "data",
    "training_images",
    "validation_images",
)


def run_settings(run: RunRecord) -> dict[str, str]:
    """The settings and circumstances of a run, in words."""
    values: dict[str, Any] = {k: v for k, v in run.settings.items() if k not in FOLDERS}
    values["replicas"] = run.summary.get("replicas")  # the settings may leave it open
    values |= {name: run.summary[name] for name in _FACTS if name in run.summary}
    names = run.summary.get("device_names")
    if isinstance(names, list):
        values["device"] = list(dict.fromkeys(map(str, names)))
    versions = run.summary.get("versions")
    if isinstance(versions, Mapping):
        values |= {f"version of {name}": version for name, version in versions.items()}
    return {str(name): setting(value) for name, value in values.items()}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names whose values are not the same in all; a missing one is a difference."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({one.get(name) for one in settings}) > 1]


def shared(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all have alike."""
    apart = set(differing(settings))
    return {k: v for k, v in settings[0].items() if k not in apart} if settings else {}
