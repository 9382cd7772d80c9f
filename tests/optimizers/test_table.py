import kdist.optimizers
import keras
import pytest
from kdist.errors import UserError
from kdist.optimizers.table import OPTIMIZERS, check_momentum, l2_factor, make_optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_makes_its_optimizer_and_decays_once(name):
    optimizer = make_optimizer(name, 0.1, momentum=None, wd=0.01)
    kind = {"sgd": "SGD", "momentum": "SGD", "adam": "Adam", "adamw": "AdamW"}.get(name)
    source = keras.optimizers if kind else kdist.optimizers
    kind = kind or {"novograd": "NovoGrad", "lars": "LARS"}[name]
    assert type(optimizer) is getattr(source, kind)
    own = optimizer.weight_decay or getattr(optimizer, "weight_decay_rate", 0)
    assert sorted([own, l2_factor(name, 0.01)]) == [0, 0.01]


@pytest.mark.parametrize(
    ("name", "momentum", "expected"),
    [("sgd", None, 0), ("sgd", 0.8, 0.8), ("momentum", None, 0.9), ("lars", 0.5, 0.5)],
)
def test_momentum(name, momentum, expected):
    check_momentum(name, momentum)
    optimizer = make_optimizer(name, 0.1, momentum=momentum, wd=0)
    assert optimizer.momentum == expected
    if name != "lars":
        assert optimizer.nesterov == (expected > 0)


@pytest.mark.parametrize("name", ["adam", "adamw", "novograd"])
def test_a_momentum_that_would_be_ignored_is_refused(name):
    check_momentum(name, None)
    with pytest.raises(UserError, match="remove momentum"):
        check_momentum(name, 0.9)


def test_an_unknown_name_is_refused():
    with pytest.raises(UserError, match="optimizer has to be one of"):
        make_optimizer("sdg", 0.1, momentum=None, wd=0)
