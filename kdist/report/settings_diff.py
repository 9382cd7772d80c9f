"""The settings of runs: those that differ, and those that all share."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..charts.formatting import setting
from ..runs.run_record import RunRecord
from ..training.fields import field_names
from ..training.model_name import model_name
from ..training.settings import FOLDERS, OwnModel

DERIVED = frozenset(
    {"global_batch", "learning_rate", "parameters", "training_images", "validation_images"}
)
"""Facts that follow from settings and data."""

_FACTS = (
    "global_batch",
    "learning_rate",
    "parameters",
    "data",
    "training_images",
    "validation_images",
)
_VERSION = "version of "


def settings_of(run: RunRecord) -> dict[str, str]:
    """Return the settings and facts of a run as text; those that are not known are missing."""
    values: dict[str, Any] = {k: v for k, v in run.settings.items() if k not in FOLDERS}
    values.pop("replicas", None)  # the settings may leave it open
    if values.get("model") is not None:
        values["model"] = model_name(values)
    for name in field_names(OwnModel):
        if values.get(name) is None:
            values.pop(name, None)
    facts = ("replicas", *_FACTS)
    values |= {name: run.summary[name] for name in facts if name in run.summary}
    names = run.summary.get("device_names")
    if isinstance(names, list):
        values["device"] = list(dict.fromkeys(map(str, names)))
    versions = run.summary.get("versions")
    if isinstance(versions, Mapping):
        values |= {f"{_VERSION}{name}": version for name, version in versions.items()}
    return {str(name): setting(value) for name, value in values.items()}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names whose values are not the same in all.

    A missing setting is a difference. A missing fact, such as the device of a run that was killed,
    is not known.
    """
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len(_values(name, settings)) > 1]


def _values(name: str, settings: Sequence[Mapping[str, str]]) -> set[str | None]:
    values = {one.get(name) for one in settings}
    is_fact = name in ("replicas", "device", *_FACTS) or name.startswith(_VERSION)
    return values - {None} if is_fact else values


def shared(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the names and values that are the same in all."""
    apart = set(differing(settings))
    return {k: v for one in settings for k, v in one.items() if k not in apart}
