"""Whether a tracker's folder can be written, told before anything is trained."""

import os
from pathlib import Path

from ..errors import UserError


def check_folder(folder: Path, tracker: str) -> None:
    """Refuse a folder that cannot be made or written into; nothing is made yet.

    Args:
        folder: It need not exist.
        tracker: Whose files are to go there.

    Raises:
        UserError: It or the folder that it would be made in is no folder, or is not writable.
    """
    existing = folder.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        problem = None if existing.is_dir() else f"{existing} is not a folder"
    except OSError as error:
        problem = f"{existing}: {error.strerror}"
    if problem is None and not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} is not writable"
    if problem is not None:
        raise UserError(
            f"cannot write the files of {tracker} into {folder}: {problem}; choose another folder"
        )
