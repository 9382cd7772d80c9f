"""Where CIFAR-10 is taken from, on small files."""

import cifar10_made
import pytest
from cifar10_made import MADE, assert_is_made, fill, pack
from kdist.data.cifar10_files import BINARY, PYTHON
from kdist.errors import UserError


@pytest.fixture
def places(tmp_path):
    """The cache and a server; neither exists yet."""
    return tmp_path / "cache", tmp_path / "server"


def find(places, lines, *, data_dir=None):
    cache, server = places
    return cifar10_made.find(data_dir, cache=cache, server=server, lines=lines)


def line(source):
    return f"CIFAR-10: 100 training and 20 test images from {source}"


@pytest.mark.parametrize("kind", MADE)
def test_a_given_folder_or_archive_comes_first(kind, places, tmp_path):
    cache, server = places
    fill(cache / PYTHON.folder, "python")
    pack(server, "python")
    given = fill(tmp_path / "given", kind)
    unpacked = fill(tmp_path / "above" / MADE[kind][0].folder, kind)
    archive = pack(tmp_path / "packed", kind)
    lines = []
    for data_dir, source in [
        (str(given), given),
        (given, given),
        (unpacked.parent, unpacked),
        (archive, archive),
        (archive.parent, archive),
    ]:
        assert_is_made(find(places, lines, data_dir=data_dir), source)
        assert lines.pop() == line(source)
        assert lines == []


def test_files_come_before_an_archive(places, tmp_path):
    archive = pack(tmp_path / "given", "python")
    assert_is_made(find(places, [], data_dir=archive.parent), archive)
    unpacked = fill(archive.parent / BINARY.folder, "binary")
    assert_is_made(find(places, [], data_dir=archive.parent), unpacked)


def test_the_files_that_a_folder_inside_lacks_are_named(places, tmp_path):
    unpacked = fill(tmp_path / "given" / BINARY.folder, "binary")
    (unpacked / "data_batch_2.bin").unlink()
    words = f"given' has no {BINARY.folder}/data_batch_2.bin; expected the 6 files"
    with pytest.raises(UserError, match=words):
        find(places, [], data_dir=tmp_path / "given")


@pytest.mark.parametrize("inner", [PYTHON.folder, f"{PYTHON.folder}-target/{PYTHON.folder}"])
def test_then_the_folder_of_keras(inner, places):
    cache, server = places
    pack(server, "python")
    folder = fill(cache / inner, "python")
    lines = []
    assert_is_made(find(places, lines), folder)
    assert lines == [line(folder)]


def test_then_a_download_which_is_kept(places):
    cache, server = places
    archive = pack(server, "python")
    lines = []
    kept = cache / archive.name
    assert_is_made(find(places, lines), kept)
    assert lines[0] == f"CIFAR-10: downloading 170 MB from file://{archive}"
    assert lines[1:] == [line(kept)]
    archive.unlink()  # it needs no network any more
    assert_is_made(find(places, lines), kept)
    assert list(cache.iterdir()) == [kept]


def test_without_network_and_data_a_line_says_how_to_get_it(places):
    lines = []
    with pytest.raises(
        UserError,
        match=r"^CIFAR-10 was not found and could not be downloaded \(.*No such file.*\): download "
        r"file://\S+/cifar-10-python\.tar\.gz elsewhere, and pass the file or its folder as "
        r"data_dir, or put it into \S+/cache$",
    ) as caught:
        find(places, lines)
    assert "\n" not in str(caught.value)
    assert lines == [f"CIFAR-10: downloading 170 MB from {places[1].as_uri()}/{PYTHON.archive}"]
    assert list(places[0].iterdir()) == []


def test_a_download_of_something_else_is_an_error_and_is_not_kept(places):
    cache, server = places
    archive = pack(server, "python")
    archive.write_bytes(b"<html>Please log in</html>")
    with pytest.raises(
        UserError,
        match=rf"downloaded \(.* does not match .*{MADE['python'][0].sha256}\.\): download",
    ):
        find(places, [])
    assert list(cache.iterdir()) == []


def test_a_damaged_cache_is_an_error(places):
    folder = fill(places[0] / PYTHON.folder, "python")
    damaged = folder / "data_batch_2"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    lines = []
    with pytest.raises(UserError, match=f"^{damaged}: the content has MD5 .*expected .*data_dir"):
        find(places, lines)
    assert lines == []


def test_a_given_path_without_the_files_is_an_error(places, tmp_path):
    fill(places[0] / PYTHON.folder, "python")
    expected = r"; expected the 6 files of CIFAR-10, or cifar-10-python\.tar\.gz or cifar-10-bin"
    with pytest.raises(UserError, match=f"none' does not exist{expected}"):
        find(places, [], data_dir=tmp_path / "none")
    other = tmp_path / "other.tar.gz"
    other.write_bytes(b"")
    with pytest.raises(UserError, match=f"neither a folder nor an archive of this name{expected}"):
        find(places, [], data_dir=other)
    for kind, last in (("python", "test_batch"), ("binary", "test_batch.bin")):
        given = fill(tmp_path / kind, kind)
        (given / last).unlink()
        with pytest.raises(UserError, match=f"{kind}' has no {last}{expected}"):
            find(places, [], data_dir=given)
