"""What the sources of all data sets share: Keras's cache, checks of a folder, a line of text."""

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from .image_data import ImageData

HINT = "Replace or delete the file, or name another folder as data_dir."
"""What to advise where a file is damaged."""


def keras_datasets() -> Path:
    """Return the folder in which `keras.datasets` stores its files."""
    home = os.path.expanduser("~")
    # Keras falls back to /tmp too; each finds what the other has downloaded.
    base = home if os.access(home, os.W_OK) else "/tmp"  # noqa: S108
    keras_home = os.environ.get("KERAS_HOME") or os.path.join(base, ".keras")
    return Path(os.path.expanduser(keras_home), "datasets")


def check_readable(folder: Path) -> None:
    """Reject a folder that may not be read.

    Raises:
        UserError: The user lacks permission.
    """
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(
            f"data_dir {str(folder)!r} cannot be read: change its permissions (chmod u+rx), or "
            "omit data_dir to have the files found or downloaded."
        )


def announced(data: ImageData, announce: Callable[[str], object]) -> ImageData:
    """Return the images, after a line that names their source."""
    announce(
        f"{data.name}: {len(data.train_images):,} training and {len(data.test_images):,} test "
        f"images from {data.source}"
    )
    return data
