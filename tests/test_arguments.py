import numpy as np
import pytest
from kdist.arguments import positive_integer, real_number
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
