"""Settings of a run that trains a model of the user's: which it takes, and which it refuses."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import UserError
from ..user_model.names import data_name, split_name
from .fields import field_names
from .settings import OF_THE_NETWORK, Data, Model, Optimization, OwnModel, Stopping

_DEFAULTS: dict[str, Any] = {
    name: getattr(group, name)
    for group in (Data, Model, Optimization, Stopping)
    for name in field_names(group)
}


def checked_own_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check settings that depend on whether the model is the user's.

    Args:
        settings: All settings of a run.

    Returns:
        The names of the model and the data, with absolute paths, so that the run can be resumed
        and evaluated from any folder; nothing without a model.

    Raises:
        UserError: A setting does nothing, or a file does not exist.
    """
    model, data, monitor = settings["model"], settings["data"], settings["monitor"]
    if model is None:
        for name in sorted(field_names(OwnModel) - {"model"}):
            if settings[name] is not None:
                raise UserError(
                    f"received {name}={settings[name]}, which is for your own model: pass"
                    " FILE.py:FUNCTION, or remove it"
                )
        return {}
    given = [name for name in _DEFAULTS if settings[name] != _DEFAULTS[name]]
    refuse_with_own_model(model, given)
    if monitor is None:
        for name in ("target_accuracy", "patience"):
            if name in given:
                raise UserError(
                    f"{name}={settings[name]:g} does nothing with {model}, as nothing says which"
                    " metric to compare: pass monitor, such as val_accuracy, or remove it"
                )
    elif "loss" in monitor:
        raise UserError(
            f"monitor={monitor} falls as a model gets better, but target_accuracy is for a metric"
            " between 0 and 1 that rises: name such a one, such as val_accuracy, or remove it"
        )
    elif monitor.startswith("val_") and not settings["validate"]:
        raise UserError(
            f"monitor={monitor} is of the validation that validate=False turns off: remove one of"
            " them, or monitor a metric of the training"
        )
    path, function = split_name(model)
    checked = {"model": f"{os.path.abspath(path)}:{function}"}
    if data is not None:
        data_path, data_function = data_name(model, data)
        if data != data_function:
            checked["data"] = f"{os.path.abspath(data_path)}:{data_function}"
    return checked


def refuse_with_own_model(model: str | None, given: Collection[str]) -> None:
    """Reject settings of `network` and its images for a model of the user's.

    Args:
        model: The user's, or `None`.
        given: Names of the settings that the user has passed.

    Raises:
        UserError: There is one.
    """
    decided = [name for name in given if name in OF_THE_NETWORK]
    if model is not None and decided:
        them = "it" if len(decided) == 1 else "them"
        raise UserError(
            f"received {', '.join(decided)}, which {model} decides itself: remove {them}, or write"
            f" {them} into its functions"
        )
