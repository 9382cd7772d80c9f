import math
from fractions import Fraction
from pathlib import Path

import kdist
import numpy as np
import pytest
from kdist.arguments import as_real, local_path, number_within, path_text, positive_integer
from kdist.errors import UserError
from kdist.training.config import TrainConfig


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
    number = number_within("base", value, hint="pass 0.1")
    assert number == value
    assert type(number) is float


@pytest.mark.parametrize("value", [True, "0.1", None, [0.1], 1j, math.nan, 0, 1, math.inf])
def test_what_is_no_number_within_bounds_is_refused(value):
    with pytest.raises(UserError, match=r"base is .* a number above 0 and below 1: pass 0.1"):
        number_within("base", value, above=0, below=1, hint="pass 0.1")


def test_infinity_is_refused_unless_it_is_asked_for():
    with pytest.raises(UserError, match="budget is inf, but has to be a number above 0 and finite"):
        number_within("budget", math.inf, above=0)
    assert number_within("budget", math.inf, above=0, is_finite=False) == math.inf


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
        ("", "--output is an empty path: leave it out to use the default"),
        (5, "--output has to be a path, received 5"),
        ("\0", r"--output has to be a path in UTF-8 without null bytes, received '\\x00'"),
        ("a\udcff", r"--output .* received 'a\\udcff'"),
    ],
)
def test_what_no_file_is_called_is_refused(path, words):
    with pytest.raises(UserError, match=words):
        path_text("--output", path)


@pytest.mark.parametrize("path", ["gs://bucket/run", "S3://bucket", Path("memory://a"), "ram://a"])
def test_an_address_of_a_remote_storage_is_refused(path):
    with pytest.raises(UserError, match="an address of remote storage.*mount the storage"):
        local_path("run_dir", path)


@pytest.mark.parametrize("path", ["runs/1", "/a:b/c", "a:b", Path("x:y")])
def test_a_path_with_a_colon_is_local(path):
    assert local_path("run_dir", path) == str(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kdist.callbacks.SaveTrainingData("s3://bucket/training.csv"),
        lambda: kdist.tracking.tracking("tensorboard", folder="gs://bucket/run", config={}),
        lambda: TrainConfig(log_dir="gs://bucket/run"),
    ],
)
def test_nothing_is_saved_in_a_folder_named_like_a_remote_storage(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="remote storage"):
        make()
    assert not list(tmp_path.iterdir())
