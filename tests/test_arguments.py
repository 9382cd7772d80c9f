import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from kdist.arguments import as_real, path_text, positive_integer, real_number
from kdist.errors import UserError


@pytest.mark.parametrize("value", [1, 7, np.int64(3), np.uint8(3)])
def test_integers_pass_as_int(value):
    number = positive_integer("patience", value, hint="pass 2")
    assert number == value
    assert type(number) is int


@pytest.mark.parametrize("value", [0, -1, True, False, 2.0, "2", None, np.float32(2), [1]])
def test_what_is_no_positive_integer_is_refused(value):
    with pytest.raises(UserError, match=r"patience is .* integer of at least 1: pass 2"):
        positive_integer("patience", value, hint="pass 2")


@pytest.mark.parametrize("value", [0.5, 2, np.float32(0.5), np.int64(2)])
def test_numbers_pass_as_float(value):
    number = real_number("base", value, hint="pass 0.1")
    assert number == value
    assert type(number) is float


@pytest.mark.parametrize("value", [True, "0.1", None, [0.1], 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(UserError, match=r"base is .* has to be a number: pass 0.1"):
        real_number("base", value, hint="pass 0.1")


def test_a_number_beyond_float64_is_infinite_as_its_literal_would_be():
    assert as_real(10**400) == math.inf
    assert as_real(-(10**400)) == -math.inf
    assert as_real(Fraction(10**400, 10**399)) == 10


@pytest.mark.parametrize(
    ("path", "text"), [("a/b", "a/b"), (Path("a"), "a"), ("zwölf/\U0001f642", "zwölf/\U0001f642")]
)
def test_a_path_is_text(path, text):
    assert path_text("--output", path) == text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "--output has to be a path, received an empty one: remove it for the default"),
        (5, "--output has to be a path, received 5"),
        ("\0", r"--output has to be a path in UTF-8 without null bytes, received '\\x00'"),
        ("a\udcff", r"--output .* received 'a\\udcff'"),
    ],
)
def test_what_no_file_is_called_is_refused(path, words):
    with pytest.raises(UserError, match=words):
        path_text("--output", path)
