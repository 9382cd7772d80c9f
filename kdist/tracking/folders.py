"""Check that a tracker's folder can be written, before training starts."""

import os
from pathlib import Path

from ..errors import UserError, error_text


def check_folder(folder: Path, tracker: str) -> None:
    """Reject a folder that cannot be created or written, without creating it.

    Args:
        folder: The folder; it need not exist.
        tracker: The tracker whose files will be written there.

    Raises:
        UserError: The folder, or its nearest existing parent, is not a folder or is not writable.
    """
    existing = folder.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        problem = None if existing.is_dir() else f"{existing} is not a folder"
    except OSError as error:
        problem = f"{existing}: {error_text(error)}"
    if problem is None and not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} is not writable"
    if problem is not None:
        raise UserError(
            f"cannot write the files of {tracker} into {folder}: {problem}; choose another folder"
        )
