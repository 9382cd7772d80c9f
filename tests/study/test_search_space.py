import json

import keras_tuner
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.study.search_results import make_trial_config
from kdist.study.search_space import DEFAULT_SPACE, TUNABLE, SearchSpace
from kdist.training.config import TrainConfig

BASE = TrainConfig(epochs=4, depth=10, width=1)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (
            {"learning_rate": [0.1]},
            "has learning_rate, which cannot be tuned: available are augment",
        ),
        ({"replicas": [1, 2]}, "has replicas, which cannot be tuned"),
        ({}, "the search space is empty"),
        (
            {"width": 2},
            "has to be a list of different choices, or a table with min and max; received 2",
        ),
        ({"width": []}, "has to be a list of different choices"),
        ({"width": [2, 4, 2]}, "has to be a list of different choices"),
        ({"depth": {"min": 10, "max": 22}}, "setting, depth 11"),
        ({"width": [1, [2]]}, r"setting, width \[2\]: width has to be an integer"),
        ({"depth": [10, 12]}, "setting, depth 12: depth has to be 6n \\+ 4"),
        ({"depth": {"min": 10, "max": 21}}, "setting, depth 21"),
        ({"dropout": {"min": 0.0, "max": 1.0}}, "setting, dropout 1.0"),
        ({"warmup_epochs": [0, 4]}, "leaves no epoch at the full learning rate"),
        ({"optimizer": {"min": 1, "max": 2}}, "setting, optimizer 1: optimizer has to be one of"),
        ({"wd": {"min": 0.1}}, "the range of wd needs numbers: a min below its max"),
        ({"wd": {"min": 0.1, "max": 0.2, "steps": 3}}, "sampling is also optional; received"),
        ({"wd": {"min": 0.2, "max": 0.1}}, "a min below its max"),
        ({"wd": {"min": "a", "max": 0.1}}, "the range of wd needs numbers"),
        ({"wd": {"min": 0.1, "max": float("nan")}}, "a min below its max"),
        ({"width": {"min": 1, "max": 2.5}}, "setting, width 2.5: width has to be an integer"),
        ({"width": {"min": 1, "max": 4, "step": 0}}, "a step above 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(ranges, words):
    with pytest.raises(UserError, match=words):
        SearchSpace(ranges, base=BASE)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"min": 0, "max": 1, "sampling": "log"}, "range of wd is invalid: .*negative values"),
        ({"min": 0.1, "max": 1, "sampling": "log", "step": 1}, "expected step > 1"),
        ({"min": 0.1, "max": 1, "sampling": "even"}, "sampling must be one of"),
        ({"min": 0.1, "max": 1, "sampling": 5}, "range of wd is invalid"),
    ],
)
def test_a_range_that_keras_tuner_rejects_is_refused(bounds, words):
    space = SearchSpace({"wd": bounds}, base=BASE)
    with pytest.raises(UserError, match=words):
        space.declare(keras_tuner.HyperParameters())


@pytest.mark.parametrize("name", sorted(TUNABLE))
def test_a_tunable_setting_takes_its_own_value(name):
    value = getattr(BASE, name)
    assert SearchSpace({name: [value]}, base=BASE).ranges[name] == [value]


def test_the_setting_is_named_that_does_not_suit_the_others():
    base = TrainConfig(schedule="exponential", decay_epochs=2)
    with pytest.raises(UserError, match="decay_epochs=2.0 has no effect if schedule=constant"):
        SearchSpace(DEFAULT_SPACE, base=base)
    together = {"schedule": ["exponential"], "decay_epochs": [2, 5]}
    assert set(SearchSpace(together, base=TrainConfig()).ranges) == set(together)


def test_the_default_space_is_one():
    assert SearchSpace(DEFAULT_SPACE, base=BASE).ranges == DEFAULT_SPACE


MIXED = {
    "base_lr": {"min": 0.001, "max": 0.1, "sampling": "log"},
    "batch_size": {"min": 8, "max": 64, "step": 2, "sampling": "log"},
    "width": {"min": 1, "max": 3},
    "momentum": [None, 0.9],
    "label_smoothing": [0, 0.1],
    "augment": [True, False],
    "schedule": ["constant", "cosine"],
}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_keras_tuners_values_come_back_as_settings(seed):
    searched = SearchSpace(MIXED, base=BASE)
    hp = keras_tuner.HyperParameters()
    searched.declare(hp)
    assert {part.name for part in hp.space} == set(MIXED)
    hp.values = {part.name: part.random_sample(seed) for part in hp.space}
    values = searched.decode(hp.values)
    assert 0.001 <= values["base_lr"] <= 0.1
    assert values["batch_size"] in (8, 16, 32, 64)
    assert values["width"] in (1, 2, 3)
    assert values["momentum"] in (None, 0.9)
    assert values["label_smoothing"] in (0.0, 0.1)
    assert values["augment"] in (True, False)
    assert isinstance(values["augment"], bool)
    make_trial_config(BASE, values)
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("optimizer", "rule", "factor"),
    [("sgd", "linear", 4), ("adam", "auto", 2), ("sgd", "none", 1), ("sgd", "sqrt", 2)],
)
def test_the_rate_follows_the_batch_by_its_rule(optimizer, rule, factor):
    base = TrainConfig(batch_size=32, lr_rule=rule)
    config = make_trial_config(base, {"base_lr": 0.01, "batch_size": 128, "optimizer": optimizer})
    assert config.base_lr == pytest.approx(0.01 * factor)
    assert (config.batch_size, config.optimizer) == (128, optimizer)


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(UserError, match="received momentum=0.9 with optimizer=adam"):
        make_trial_config(BASE, {"optimizer": "adam", "momentum": 0.9})
