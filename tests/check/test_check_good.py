"""No false alarms: good models are equal, and no cause is named."""

import keras
import pytest
from good_models import GOOD
from kdist import check_model

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


@pytest.mark.parametrize("name", GOOD)
def test_a_good_model_is_equal(name):
    good = GOOD[name]
    options = {"replicas": (2,), "steps": 4, "stock": False, **good.options}
    policy = keras.config.dtype_policy()
    result = check_model(good.build, good.data, **options)
    result.assert_equal()
    assert result.causes == []
    assert result.precision.startswith(good.precision)
    assert keras.config.dtype_policy() is policy
    if options["stock"]:
        assert not result.stock.is_equal
        assert "stock" in str(result)
    keras.backend.clear_session()
