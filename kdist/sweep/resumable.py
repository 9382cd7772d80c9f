"""Points whose run was cut short amid its training, and continues from its checkpoints."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checkpoint.store import checkpoint_files
from ..files import parse_json, read_text


def can_be_resumed(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a point's folder has checkpoints of a run with these settings.

    Args:
        folder: Of the point; may be missing.
        config: Settings of the point's run.
    """
    if config.get("checkpoint_every") is None:
        return False
    try:
        order = parse_json(read_text(folder / "order.json"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    same = json.loads(json.dumps(run_config(folder, config)))
    return bool(order == same and checkpoint_files(folder / "run" / "checkpoints"))


def run_config(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a point's run, with its folder."""
    return {**config, "run_dir": str(folder / "run")}


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a point that ended: a sweep has many points."""
    shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
