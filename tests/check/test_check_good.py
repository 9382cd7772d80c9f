"""No false alarms: good models are equal, and no cause is named."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from good_models import GOOD
from kdist import check_model
from kdist._upstream import kept_seeds

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def draws():
    """The next random numbers, which are then drawn again."""
    with kept_seeds():
        return (
            random.random(),
            float(np.random.random()),
            float(tf.random.uniform(())),
            float(keras.random.uniform(())),
        )


@pytest.mark.parametrize("name", GOOD)
def test_a_good_model_is_equal(name):
    good = GOOD[name]
    options = {"replicas": (2,), "steps": 4, "stock": False, **good.options}
    policy, drawn = keras.config.dtype_policy(), draws()
    result = check_model(good.build, good.data, **options)
    result.assert_equal()
    assert result.causes == []
    assert result.precision.startswith(good.precision)
    assert keras.config.dtype_policy() is policy
    assert draws() == drawn
    if options["stock"]:
        assert not result.stock.is_equal
        assert "stock" in str(result)
    keras.backend.clear_session()
