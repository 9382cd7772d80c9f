"""CIFAR-10's two formats, on small files."""

import cifar10_made
import numpy as np
import pytest
from cifar10_made import IMAGES, LABELS, MADE, PIXELS, assert_is_made, fill, made_of, pack
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.cifar10_files import BINARY, PYTHON, VERSIONS, find, read_version
from kdist.data.cifar10_formats import parse_binary, parse_pickled
from kdist.errors import UserError

PARSE = {"python": parse_pickled, "binary": parse_binary}


@pytest.mark.parametrize("kind", MADE)
def test_both_formats_hold_the_same_images(kind, tmp_path):
    folder = fill(tmp_path / kind, kind)
    assert_is_made(read_version(MADE[kind][0], folder), folder)
    archive = pack(tmp_path, kind)
    assert_is_made(read_version(MADE[kind][0], archive), archive)


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
    "a negative label": ({"labels": [-7] * 20}, "image 0 has the label -1; expected 0 to 9"),
    "a huge label": ({"labels": [2**80] * 20}, "image 0 has the label 256; expected 0 to 9"),
    "a label that is no integer": ({"labels": [0] * 19 + [b"1"]}, "label 19 is no integer"),
    "true as a label": ({"labels": [True] * 20}, "label 0 is no integer"),
    "too few labels": ({"labels": [0] * 19}, r"has 19 labels and data of shape \(20, 3072\)"),
    "too few images": ({"data": DATA[1:]}, r"has 20 labels and data of shape \(19, 3072\)"),
    "images of another size": ({"data": DATA[:, :768]}, r"data of shape \(20, 768\)"),
    "images as a list": ({"data": [0] * 20}, "is a pickle without labels and data"),
    "labels as an array": ({"labels": DATA[0]}, "is a pickle without labels and data"),
    "fractions": ({"data": DATA.astype(np.float32)}, "not of unsigned bytes"),
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


@pytest.mark.parametrize("kind", MADE)
def test_too_many_images_of_a_class_are_refused(kind, tmp_path):
    version, contents, _ = MADE[kind]
    last = list(version.files)[-1]
    changed = dict(contents)
    changed[last] = contents[next(iter(version.files))]
    read_version(made_of(version, changed)[0], write(tmp_path / "balanced", changed))
    if kind == "python":
        changed[last] = cifar10_made.pickled(5, labels=[0, *range(1, 10)] * 2)
        read_version(made_of(version, changed)[0], write(tmp_path / "also", changed))
        changed[last] = cifar10_made.pickled(5, labels=[1, *range(1, 10)] * 2)
    else:
        odd = bytearray(contents[last])
        odd[0] = (odd[0] + 1) % 10
        changed[last] = bytes(odd)
    with pytest.raises(
        UserError, match=r"there are \d to \d test images of a class; expected 2, so"
    ):
        read_version(made_of(version, changed)[0], write(tmp_path / "odd", changed))


def write(folder, contents):
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_file_with_another_checksum_is_refused(tmp_path):
    version, contents, _ = MADE["python"]
    folder = fill(tmp_path / "python", "python")
    damaged = bytearray(contents["test_batch"])
    damaged[damaged.index(b"T") + 2000] ^= 1
    (folder / "test_batch").write_bytes(damaged)
    with pytest.raises(
        UserError, match=r"test_batch: the content has MD5 \w+; expected \w+, so it"
    ):
        read_version(version, folder)


@pytest.mark.parametrize("kind", MADE)
def test_an_archive_with_another_checksum_is_not_opened(kind, tmp_path):
    archive = pack(tmp_path, kind)
    content = bytearray(archive.read_bytes())
    archive.write_bytes(content[:-1])
    with pytest.raises(UserError, match=r"has [\d,]+ bytes; expected [\d,]+\. Replace"):
        read_version(MADE[kind][0], archive)
    content[-1] ^= 1
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"has (SHA256|MD5) \w+; expected \w+, so it is damaged"):
        read_version(MADE[kind][0], archive)


def test_an_archive_without_a_file_is_refused(tmp_path):
    version, contents, _ = MADE["python"]
    fewer = {name: content for name, content in contents.items() if name != "data_batch_3"}
    other, _, packed = made_of(version, fewer)
    path = tmp_path / version.archive.name
    path.write_bytes(packed)
    complete = cifar10_made.replace(other, files=version.files)
    with pytest.raises(UserError, match="has no data_batch_3"):
        read_version(complete, path)


def test_a_file_that_never_ends_is_refused(tmp_path):
    folder = fill(tmp_path / "binary", "binary")
    (folder / "data_batch_2.bin").unlink()
    (folder / "data_batch_2.bin").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"data_batch_2\.bin: holds more than 61,460 bytes"):
        read_version(MADE["binary"][0], folder)


@pytest.mark.parametrize("kind", MADE)
def test_what_is_found(kind, tmp_path):
    versions = cifar10_made.VERSIONS
    version = MADE[kind][0]
    assert find(tmp_path, versions) is None
    archive = pack(tmp_path / "packed", kind)
    assert find(archive, versions) == find(archive.parent, versions) == (version, archive)
    folder = fill(tmp_path / version.folder, kind)
    assert find(folder, versions) == find(tmp_path, versions) == (version, folder)
    (folder / next(iter(version.files))).unlink()
    assert find(tmp_path, versions) is None


def test_the_published_files():
    assert [version.archive.size for version in VERSIONS] == [170_498_071, 170_052_171]
    assert [version.images * len(version.files) for version in VERSIONS] == [60_000, 60_000]
    assert BINARY.most_bytes == 30_730_000
    assert 31_035_999 < PYTHON.most_bytes < 32_000_000
    assert all(len(checksum or "") == 32 for checksum in PYTHON.files.values())
    assert list(BINARY.files) == [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
