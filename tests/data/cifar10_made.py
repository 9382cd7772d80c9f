"""Small files in CIFAR-10's two formats, each written by other means than those that read them."""

import hashlib
import io
import pickle
import struct
import tarfile
from dataclasses import replace

import numpy as np
from kdist.data.cifar10_files import BINARY, PYTHON, find_cifar10

IMAGES = 20  # in each file
RANDOM = np.random.default_rng(3)
# Pixels as a person thinks of them, (image, row, column, colour), and labels, per file.
PIXELS = [RANDOM.integers(0, 256, (IMAGES, 32, 32, 3), np.uint8) for _ in PYTHON.files]
LABELS = [RANDOM.permutation(np.repeat(np.arange(10), IMAGES // 10)) for _ in PYTHON.files]


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 did, in which the published files were written."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_bytes(self, text):
        short = len(text) < 256
        header = b"U" + bytes([len(text)]) if short else b"T" + struct.pack("<i", len(text))
        self.write(header + text)
        self.memoize(text)

    dispatch[bytes] = save_bytes


def python2_pickle(value):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def planes(pixels):
    """Pixels as they are in the files: red, then green, then blue."""
    return np.stack([pixels[..., colour].reshape(len(pixels), -1) for colour in range(3)], 1)


def pickled(number, **changes):
    """The content of a file of the Python version."""
    batch = {
        b"batch_label": b"training batch %d of 5" % (number + 1),
        b"labels": LABELS[number].tolist(),
        b"data": planes(PIXELS[number]).reshape(IMAGES, -1),
        b"filenames": [b"some_photograph_%06d.png" % at for at in range(IMAGES)],
    }
    return python2_pickle(batch | {name.encode(): value for name, value in changes.items()})


def binary(number):
    """The content of a file of the binary version."""
    images = zip(LABELS[number], planes(PIXELS[number]), strict=True)
    return b"".join(bytes([label]) + image.tobytes() for label, image in images)


def made(version, content):
    """A version of small files, and their contents."""
    contents = {name: content(number) for number, name in enumerate(version.files)}
    return made_of(version, contents)


def made_of(version, contents):
    """A version of these files, with their checksums."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in [("readme.html", b"about"), *contents.items()]:
            member = tarfile.TarInfo(f"{version.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed = file.getvalue()
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    small = replace(
        version,
        files=version.files if version.files == BINARY.files else sums,
        sha256=hashlib.sha256(packed).hexdigest(),
        images=IMAGES,
    )
    return small, contents, packed


MADE = {"python": made(PYTHON, pickled), "binary": made(BINARY, binary)}


def fill(folder, kind):
    """Write the files of a kind into a new folder."""
    folder.mkdir(parents=True)
    for name, content in MADE[kind][1].items():
        (folder / name).write_bytes(content)
    return folder


def pack(folder, kind):
    """Write the archive of a kind into a folder; return its path."""
    version, _, packed = MADE[kind]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / version.archive
    path.write_bytes(packed)
    return path


def find(data_dir, *, cache=None, server=None, lines=None, **versions):
    """Load small files from a folder, or from a cache or a server."""
    return find_cifar10(
        data_dir=data_dir,
        announce=[].append if lines is None else lines.append,
        cache=cache or data_dir,
        url="" if server is None else f"{server.as_uri()}/",
        **{kind: version for kind, (version, _, _) in MADE.items()} | versions,
    )


def assert_is_made(data, source):
    """All images and labels, in the order of the files."""
    assert (data.name, data.source) == ("CIFAR-10", str(source))
    np.testing.assert_array_equal(data.train_images, np.concatenate(PIXELS[:5]), strict=True)
    np.testing.assert_array_equal(data.test_images, PIXELS[5], strict=True)
    np.testing.assert_array_equal(data.train_labels, np.concatenate(LABELS[:5]))
    np.testing.assert_array_equal(data.test_labels, LABELS[5])
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert data.train_images.flags.c_contiguous
