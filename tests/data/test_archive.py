"""Archives: size and checksum are those that were published, or the error says which are not."""

import hashlib

import pytest
from kdist.data.archive import Archive, verify_archive
from kdist.data.sources import HINT
from kdist.errors import UserError

CONTENT = bytes(range(256)) * 8193  # more than is read at once
ARCHIVE = Archive(
    name="all.tar.gz",
    size=len(CONTENT),
    algorithm="sha256",
    checksum=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / ARCHIVE.name
    path.write_bytes(CONTENT)
    return path


def test_the_published_archive_passes(path):
    verify_archive(path, ARCHIVE)


def test_another_size_is_refused(path):
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(UserError) as error:
        verify_archive(path, ARCHIVE)
    assert str(error.value) == f"{path}: has 2,097,407 bytes; expected 2,097,408. {HINT}"


def test_another_content_is_refused(path):
    path.write_bytes(CONTENT[:-1] + b"\0")
    with pytest.raises(UserError) as error:
        verify_archive(path, ARCHIVE, origin="the download", hint="Try again.")
    said = str(error.value)
    assert said.startswith("the download: has SHA256 ")
    assert said.endswith(
        f"; expected {ARCHIVE.checksum}, so it is damaged or another file. Try again."
    )
