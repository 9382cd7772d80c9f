"""What the sources of all data sets share: Keras's cache, a download, checks, a line of text."""

import contextlib
import io
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, error_text

if TYPE_CHECKING:
    from .image_data import ImageData

HINT = "Replace or delete the file, or name another folder as data_dir."
"""What to advise where a file is damaged."""


class DownloadError(Exception):
    """Why a file could not be downloaded, in a few words."""


def keras_datasets() -> Path:
    """Return the folder in which `keras.datasets` stores its files."""
    home = os.path.expanduser("~")
    # Keras falls back to /tmp too; each finds what the other has downloaded.
    base = home if os.access(home, os.W_OK) else "/tmp"  # noqa: S108
    keras_home = os.environ.get("KERAS_HOME") or os.path.join(base, ".keras")
    return Path(os.path.expanduser(keras_home), "datasets")


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    verify: Callable[[Path], object] | None = None,
    timeout_s: float = 10.0,
) -> None:
    """Download `url` to `target`, which appears only when it is complete and verified.

    Args:
        url: The address.
        target: The file to write; its folder is created if it is missing.
        sha256: SHA-256 that the file must have, in hexadecimal.
        verify: Called with the path of the downloaded file; a `UserError` of it is passed on.
        timeout_s: Longest wait for the server, in seconds.

    Raises:
        DownloadError: There is no network, no such file, no space to write it, or another file
            came.
    """
    import keras  # here, as a data set that is on this machine needs NumPy only

    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)  # Keras would wait for minutes
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Keras writes to the file's own name, where another worker would find half of it.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
            with contextlib.redirect_stdout(io.StringIO()):  # lines of progress
                path = keras.utils.get_file(
                    target.name, url, file_hash=sha256, cache_dir=folder, cache_subdir=""
                )
            if verify is not None:
                verify(Path(path))
            os.replace(path, target)
    except UserError:
        raise
    except OSError as error:
        place = error.filename2 or error.filename
        text = error_text(error)
        raise DownloadError(
            f"cannot write {place}: {text}" if place else f"{url}: {text}"
        ) from error
    except Exception as error:  # Keras raises no narrower one
        raise DownloadError(str(error)) from error
    finally:
        socket.setdefaulttimeout(patience)


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


def announced(data: "ImageData", announce: Callable[[str], object]) -> "ImageData":
    """Return the images, after a line that names their source."""
    announce(
        f"{data.name}: {len(data.train_images):,} training and {len(data.test_images):,} test "
        f"images from {data.source}"
    )
    return data
