"""Pickles of plain data are read, and nothing in any pickle is run."""

import collections
import os
import pickle

import numpy as np
import pytest
from cifar10_made import pickled, python2_pickle
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.plain_pickle import read_plain_pickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.binary(), inner, max_size=4)
        | st.tuples(inner, inner, inner, inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_data_is_what_python_reads(value, protocol):
    assert read_plain_pickle(pickle.dumps(value, protocol)) == value


@settings(deadline=None)
@given(PLAIN)
def test_texts_of_python_2_are_bytes(value):
    assert read_plain_pickle(python2_pickle(value)) == value


@pytest.mark.parametrize("dump", [pickle.dumps, lambda value, _: python2_pickle(value)])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays(dump, protocol):
    array = np.random.default_rng(0).integers(0, 256, (3, 5, 2), np.uint8)
    read = read_plain_pickle(dump({"a": array, "b": [array, array]}, protocol))
    for one in (read["a"], *read["b"]):
        np.testing.assert_array_equal(one, array, strict=True)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros(3, np.float32), "not of unsigned bytes"),
        (np.zeros(3, np.int8), "not of unsigned bytes"),
        (np.zeros((2, 3), np.uint8, order="F"), "not of unsigned bytes, row by row"),
        (np.array([b"a", None], object), "not of unsigned bytes"),
    ],
)
def test_arrays_of_other_kinds_are_refused(array, why):
    with pytest.raises(ValueError, match=why):
        read_plain_pickle(pickle.dumps(array, 2))


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_run(protocol, tmp_path):
    trap = tmp_path / "trap"
    content = pickle.dumps({"labels": [1], "data": Malicious(trap)}, protocol)
    with pytest.raises(ValueError, match="which"):
        read_plain_pickle(content)
    assert not trap.exists()
    pickle.loads(content)["data"].close()  # Python does run it
    assert trap.exists()


# Each would create the file `trap` if it was run.
TRAPS = {
    "a function by its opcode": (b"\x80\x02cposix\nsystem\nU\x0atouch trap\x85R.", "posix.system"),
    "a class by INST": (b"(S'touch trap'\niposix\nsystem\n.", "operation STRING"),
    "a class by OBJ": (b"\x80\x02(cposix\nsystem\nU\x0atouch trapo.", "posix.system"),
    "an extension": (b"\x80\x02\x82\x01U\x0atouch trap\x85R.", "operation EXT1"),
    "a persistent id": (b"\x80\x02U\x0atouch trapQ.", "operation BINPERSID"),
    "a new object": (b"\x80\x02cposix\nsystem\nU\x0atouch trap\x85\x81.", "posix.system"),
    "a name in the stack": (
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93U\x0atouch trap\x85R.",
        "posix",
    ),
    "numpy's own loader": (b"\x80\x02cnumpy\nload\nU\x04trap\x85R.", "numpy.load"),
    "a text that is called": (b"\x80\x02U\x0cposix systemU\x0atouch trap\x85R.", "fit together"),
    "a known function, otherwise": (b"\x80\x02c_codecs\nencode\nU\x01aU\x05utf_7\x86R.", "fit"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_are_refused(trap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, why = TRAPS[trap]
    with pytest.raises(ValueError, match=why):
        read_plain_pickle(content)
    assert os.listdir(tmp_path) == []


# Tuples in tuples, of which a hash or a text would overflow the stack of the process.
DEEP = b")" + b"\x85" * 200_000
NESTED = {
    "a key": b"\x80\x02}" + DEEP + b"K\x01s.",
    "a function's name": b"\x80\x04" + DEEP + b"\x8c\x01a\x93.",
    "an array's type": b"\x80\x02cnumpy\ndtype\n" + DEEP + b"\x85R.",
}


@pytest.mark.parametrize("place", NESTED)
def test_what_is_nested_deeply_is_refused(place):
    with pytest.raises(ValueError, match="a key or a name is no text"):
        read_plain_pickle(NESTED[place])


@pytest.mark.parametrize(
    "value", [collections.OrderedDict(a=1), {1, 2}, 1.5, Exception("no"), range(3), np.float32(1)]
)
def test_other_values_are_refused(value):
    with pytest.raises(ValueError, match=r"which|fit together"):
        read_plain_pickle(pickle.dumps(value, 2))


WHOLE = pickled(0)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # of Python's own decoder
@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, len(WHOLE) - 1),
    st.integers(0, 40),
    st.binary(max_size=20),
    st.sampled_from("ab"),
)
def test_damaged_pickles_are_refused_or_read(place, cut, put, end):
    # Where the structure is, at the beginning and the end, or anywhere.
    place = min(place, 400) if end == "a" else place
    content = WHOLE[:place] + put + WHOLE[place + cut :]
    try:
        read_plain_pickle(content)
    except ValueError:
        return


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60))
def test_anything_else_is_refused_or_read(content):
    try:
        read_plain_pickle(b"\x80\x02" + content)
    except ValueError:
        return
