"""Download one file, completely or not at all."""

import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ..atomic_files import atomic_path
from ..errors import error_text


class DownloadError(Exception):
    """Why a file could not be downloaded, in a few words."""


def download(
    url: str,
    target: Path,
    *,
    verify: Callable[[Path], object],
    timeout_s: float = 10.0,
    begin: Callable[[], object] | None = None,
) -> None:
    """Download `url` to `target`, which appears only when it is complete and verified.

    Args:
        url: The address.
        target: The file to write; its folder is created if it is missing.
        verify: Called with the path of the downloaded file; its exceptions, except `OSError`, are
            passed on.
        timeout_s: Longest wait for an answer, in seconds.
        begin: Called once the server has answered, before the download.

    Raises:
        DownloadError: If there is no network, no such file, or no space to write it.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(target) as part:
            part.touch()  # fails before the download if the file cannot be written
            _fetch(url, part, timeout_s, begin)
            verify(part)
    except OSError as error:
        path = error.filename2 or error.filename or target
        raise DownloadError(f"cannot write {path}: {error_text(error)}") from error


def _fetch(
    url: str, path: Path, timeout_s: float, begin: Callable[[], object] | None = None
) -> None:
    try:
        with (
            urllib.request.urlopen(url, timeout=timeout_s) as answer,  # noqa: S310
            path.open("wb") as file,
        ):
            if begin is not None:
                begin()
            shutil.copyfileobj(answer, file)
            length = answer.headers.get("Content-Length", "")
            if length.isdigit() and file.tell() != int(length):
                raise DownloadError(f"{url} broke off after {file.tell():,} of {length} bytes")
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url} answered {error.code} {error.reason}") from error
    except TimeoutError as error:
        raise DownloadError(f"no answer from {url} within {timeout_s:g} s") from error
    except urllib.error.URLError as error:
        raise DownloadError(f"no network: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url} broke off: {error}") from error
