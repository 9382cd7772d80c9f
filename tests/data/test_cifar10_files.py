"""CIFAR-10's two formats, and where they are taken from, on small files."""

import os
import pickle

import cifar10_made
import numpy as np
import pytest
from cifar10_made import IMAGES, LABELS, MADE, PIXELS, assert_is_made, fill, find, made_of, pack
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.cifar10_files import BINARY, PYTHON, parse_binary, parse_pickled
from kdist.errors import UserError

PARSE = {"python": parse_pickled, "binary": parse_binary}


@pytest.mark.parametrize("kind", MADE)
def test_a_file_has_labels_and_planes(kind):
    content = MADE[kind][1][next(iter(MADE[kind][0].files))]
    labels, pixels = PARSE[kind](content, images=IMAGES, origin="here")
    np.testing.assert_array_equal(labels, LABELS[0])
    assert pixels[4][1024 + 32 * 7 + 3] == PIXELS[0][4, 7, 3, 1]  # green


@settings(deadline=None, max_examples=100)
@given(kind=st.sampled_from(sorted(MADE)), cut=st.integers(1, IMAGES * 3073), more=st.booleans())
def test_truncated_and_longer_files_are_refused(kind, cut, more):
    content = next(iter(MADE[kind][1].values()))
    content = content + content[:cut] if more and kind == "binary" else content[:-cut]
    with pytest.raises(UserError, match=r"^here: .* expected .*data_dir\.$"):
        PARSE[kind](content, images=IMAGES, origin="here")


def test_a_label_above_9_is_refused():
    content = bytearray(MADE["binary"][1]["data_batch_1.bin"])
    content[3 * 3073] = 10
    with pytest.raises(UserError, match="image 3 has the label 10; expected 0 to 9"):
        parse_binary(bytes(content), images=IMAGES, origin="here")


DATA = np.zeros((IMAGES, 3072), np.uint8)
ODD = {
    "a label above 9": ({"labels": [0] * 19 + [10]}, "image 19 has the label 10; expected 0 to 9"),
    "a negative label": ({"labels": [-7] * 20}, "image 0 has the label -7; expected 0 to 9"),
    "a huge label": ({"labels": [2**80] * 20}, r"image 0 has the label 12\d+; expected 0 to 9"),
    "a label that is no integer": ({"labels": [0] * 19 + [b"1"]}, "a label is no integer"),
    "too few labels": ({"labels": [0] * 19}, r"has 19 labels and data of shape \(20, 3072\)"),
    "too few images": ({"data": DATA[1:]}, r"has 20 labels and data of shape \(19, 3072\)"),
    "images of another size": ({"data": DATA[:, :768]}, r"data of shape \(20, 768\)"),
    "images as a list": ({"data": [0] * 20}, "is a pickle without labels and data"),
    "labels as an array": ({"labels": DATA[0]}, "is a pickle without labels and data"),
    "fractions": ({"data": DATA.astype(np.float32)}, r"data of shape \(20, 3072\), float32"),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_pickles_are_refused(odd):
    changes, why = ODD[odd]
    with pytest.raises(UserError, match=f"^here: .*{why}"):
        parse_pickled(cifar10_made.pickled(0, **changes), images=IMAGES, origin="here")


def test_a_pickle_of_something_else_is_refused():
    for value in ([1, 2], {}, b"text"):
        with pytest.raises(UserError, match=r"without labels and data; expected a pickle with 20"):
            parse_pickled(cifar10_made.python2_pickle(value), images=IMAGES, origin="here")


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_names_something_else_is_refused_and_not_run(protocol, tmp_path):
    trap = tmp_path / "trap"
    content = pickle.dumps({"labels": [1], "data": Malicious(trap)}, protocol)
    with pytest.raises(
        UserError, match=r"^here: .*'(_?io|__builtin__)\.open', which no data needs"
    ):
        parse_pickled(content, images=IMAGES, origin="here")
    assert not trap.exists()
    pickle.loads(content)["data"].close()  # Python does run it
    assert trap.exists()


# Each would create the file `trap` if it was run.
TRAPS = {
    "a function by its opcode": b"\x80\x02cposix\nsystem\nU\x0atouch trap\x85R.",
    "a class by INST": b"(S'touch trap'\niposix\nsystem\n.",
    "a class by OBJ": b"\x80\x02(cposix\nsystem\nU\x0atouch trapo.",
    "an extension": b"\x80\x02\x82\x01U\x0atouch trap\x85R.",
    "a persistent id": b"\x80\x02U\x0atouch trapQ.",
    "a new object": b"\x80\x02cposix\nsystem\nU\x0atouch trap\x85\x81.",
    "a name in the stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93U\x0atouch trap\x85R.",
    "a name with dots": b"\x80\x04\x8c\x05numpy\x8c\x0bf2py.os.open\x93U\x04trap\x85R.",
    "numpy's own loader": b"\x80\x02cnumpy\nload\nU\x04trap\x85R.",
    "a text that is called": b"\x80\x02U\x0cposix systemU\x0atouch trap\x85R.",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_are_refused(trap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="^here: cannot be read"):
        parse_pickled(TRAPS[trap], images=IMAGES, origin="here")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_python_3_are_read_too(protocol):
    batch = {"labels": LABELS[0].tolist(), "data": cifar10_made.planes(PIXELS[0]).reshape(20, -1)}
    labels, pixels = parse_pickled(pickle.dumps(batch, protocol), images=IMAGES, origin="here")
    np.testing.assert_array_equal(labels, LABELS[0])
    np.testing.assert_array_equal(pixels, batch["data"])


def changed(tmp_path, kind, **contents):
    """Load a folder in which some files are others, with their checksums."""
    version, made, _ = MADE[kind]
    made = made | contents
    folder = fill(tmp_path / kind, kind)
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return find(folder, **{kind: made_of(version, made)[0]})


def test_too_many_images_of_a_class_are_refused(tmp_path):
    labels = [[0, *range(1, 10)] * 2, [1, *range(1, 10)] * 2]
    even, odd = (cifar10_made.pickled(5, labels=some) for some in labels)
    changed(tmp_path / "even", "python", test_batch=even)
    with pytest.raises(UserError, match=r": test images: 0 to 4 are of a class; expected 2, so"):
        changed(tmp_path / "odd", "python", test_batch=odd)
    binary = bytearray(MADE["binary"][1]["data_batch_1.bin"])
    binary[0] = (binary[0] + 1) % 10
    with pytest.raises(UserError, match="training images: 9 to 11 are of a class; expected 10"):
        changed(tmp_path, "binary", **{"data_batch_1.bin": bytes(binary)})


def test_a_file_with_another_checksum_is_refused(tmp_path):
    folder = fill(tmp_path / "python", "python")
    damaged = bytearray((folder / "test_batch").read_bytes())
    damaged[2000] ^= 1
    (folder / "test_batch").write_bytes(damaged)
    with pytest.raises(
        UserError, match=r"test_batch: the content has MD5 \w+; expected \w+, so it"
    ):
        find(folder)


@pytest.mark.parametrize("kind", MADE)
def test_an_archive_with_another_checksum_is_not_opened(kind, tmp_path):
    archive = pack(tmp_path, kind)
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"has SHA-256 \w+; expected \w+, so it is damaged"):
        find(archive)


def test_an_archive_without_a_file_is_refused(tmp_path):
    version, contents, _ = MADE["python"]
    fewer = {name: content for name, content in contents.items() if name != "data_batch_3"}
    other, _, packed = made_of(version, fewer)
    path = tmp_path / version.archive
    path.write_bytes(packed)
    with pytest.raises(UserError, match="has no data_batch_3"):
        find(path, python=cifar10_made.replace(other, files=version.files))


def test_the_published_files():
    assert [version.images * len(version.files) for version in (PYTHON, BINARY)] == [60_000] * 2
    assert all(len(checksum or "") == 32 for checksum in PYTHON.files.values())
    assert list(BINARY.files) == [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


@pytest.fixture
def places(tmp_path):
    """The cache and a server; neither exists yet."""
    return tmp_path / "cache", tmp_path / "server"


def find_in(places, lines, *, data_dir=None):
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
        assert_is_made(find_in(places, lines, data_dir=data_dir), source)
        assert lines.pop() == line(source)
        assert lines == []


def test_files_come_before_an_archive(places, tmp_path):
    archive = pack(tmp_path / "given", "python")
    assert_is_made(find_in(places, [], data_dir=archive.parent), archive)
    unpacked = fill(archive.parent / BINARY.folder, "binary")
    assert_is_made(find_in(places, [], data_dir=archive.parent), unpacked)


def test_the_files_that_a_folder_inside_lacks_are_named(places, tmp_path):
    unpacked = fill(tmp_path / "given" / BINARY.folder, "binary")
    (unpacked / "data_batch_2.bin").unlink()
    words = f"given' has no {BINARY.folder}/data_batch_2.bin; expected the 6 files"
    with pytest.raises(UserError, match=words):
        find_in(places, [], data_dir=tmp_path / "given")


@pytest.mark.parametrize("inner", [PYTHON.folder, f"{PYTHON.folder}-target/{PYTHON.folder}"])
def test_then_the_folder_of_keras(inner, places):
    cache, server = places
    pack(server, "python")
    folder = fill(cache / inner, "python")
    lines = []
    assert_is_made(find_in(places, lines), folder)
    assert lines == [line(folder)]


def test_then_a_download_which_is_kept(places):
    cache, server = places
    archive = pack(server, "python")
    lines = []
    kept = cache / archive.name
    assert_is_made(find_in(places, lines), kept)
    assert lines[0] == f"CIFAR-10: downloading 170 MB from file://{archive}"
    assert lines[1:] == [line(kept)]
    archive.unlink()  # it needs no network any more
    assert_is_made(find_in(places, lines), kept)
    assert list(cache.iterdir()) == [kept]


def test_without_network_and_data_a_line_says_how_to_get_it(places):
    lines = []
    with pytest.raises(
        UserError,
        match=r"^CIFAR-10 was not found and could not be downloaded \(.*No such file.*\): download "
        r"file://\S+/cifar-10-python\.tar\.gz elsewhere, and pass the file or its folder as "
        r"data_dir, or put it into \S+/cache$",
    ) as caught:
        find_in(places, lines)
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
        find_in(places, [])
    assert list(cache.iterdir()) == []


def test_a_damaged_cache_is_an_error(places):
    folder = fill(places[0] / PYTHON.folder, "python")
    damaged = folder / "data_batch_2"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    lines = []
    with pytest.raises(UserError, match=f"^{damaged}: the content has MD5 .*expected .*data_dir"):
        find_in(places, lines)
    assert lines == []


def test_a_given_path_without_the_files_is_an_error(places, tmp_path):
    fill(places[0] / PYTHON.folder, "python")
    expected = r"; expected the 6 files of CIFAR-10, or cifar-10-python\.tar\.gz or cifar-10-bin"
    with pytest.raises(UserError, match=f"none' does not exist{expected}"):
        find_in(places, [], data_dir=tmp_path / "none")
    other = tmp_path / "other.tar.gz"
    other.write_bytes(b"")
    with pytest.raises(UserError, match=f"neither a folder nor an archive of this name{expected}"):
        find_in(places, [], data_dir=other)
    for kind, last in (("python", "test_batch"), ("binary", "test_batch.bin")):
        given = fill(tmp_path / kind, kind)
        (given / last).unlink()
        with pytest.raises(UserError, match=f"{kind}' has no {last}{expected}"):
            find_in(places, [], data_dir=given)
