"""Fetching one file, whole or not at all."""

import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path


class DownloadError(Exception):
    """Why a file could not be downloaded, in a few words."""


def download(
    url: str, target: Path, *, verify: Callable[[Path], object], timeout_s: float = 10.0
) -> None:
    """Fetch `url` as `target`, which appears only once it is complete and verified.

    Args:
        url: The address.
        target: The file to make; its folder is made where it is missing.
        verify: Called with the path of the downloaded file; what it raises is passed on.
        timeout_s: Longest wait for an answer, in seconds.

    Raises:
        DownloadError: When there is no network, no such file, or no room to write it.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-")
    except OSError as error:
        raise DownloadError(f"cannot write to {target.parent}: {error.strerror}") from error
    with folder as name:
        part = Path(name) / target.name
        _fetch(url, part, timeout_s)
        verify(part)
        try:
            part.replace(target)
        except OSError as error:
            raise DownloadError(f"cannot write {target}: {error.strerror}") from error


def _fetch(url: str, path: Path, timeout_s: float) -> None:
    try:
        with (
            urllib.request.urlopen(url, timeout=timeout_s) as answer,  # noqa: S310
            path.open("wb") as file,
        ):
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
