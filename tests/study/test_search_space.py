import dataclasses
import json

import keras_tuner
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.study.search_results import trial_config
from kdist.study.search_settings import Search
from kdist.study.search_space import DEFAULT_SPACE, NOT_TUNED, Choice, Range, SearchSpace
from kdist.training.config import TrainConfig

BASE = TrainConfig(epochs=4, depth=10, width=1)


def space(**ranges):
    return SearchSpace(ranges, base=BASE)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"learning_rate": [0.1]}, "unknown hyperparameter learning_rate in the search space"),
        ({"replicas": [1, 2]}, "replicas cannot be tuned: one strategy trains all trials"),
        ({}, "the search space is empty"),
        ({"width": 2}, "has to be a list of choices, or a table with min and max; received 2"),
        ({"width": []}, "has to be a list of choices"),
        ({"width": [1, 1]}, "has a repeated choice"),
        ({"width": [1, [2]]}, r"the search space of width contains \[2\]: pass single values"),
        ({"depth": [10, 12]}, "the search space of depth contains 12: depth has to be 6n \\+ 4"),
        ({"depth": {"min": 10, "max": 22, "step": 3}}, "contains 13"),
        ({"dropout": {"min": 0.0, "max": 1.0}}, "the search space of dropout contains 1.0"),
        ({"warmup_epochs": [0, 4]}, "leaves none of epochs=4"),
        ({"optimizer": {"min": 1, "max": 2}}, "optimizer has no range"),
        ({"wd": {"min": 0.1}}, "needs min and max, and may have step and sampling; received min"),
        ({"wd": {"min": 0.1, "max": 0.2, "steps": 3}}, "received min, max, steps"),
        ({"wd": {"min": 0.2, "max": 0.1}}, "has to be below its max, received 0.2 and 0.1"),
        (
            {"wd": {"min": "a", "max": 0.1}},
            "min of wd's range has to be a finite number, received 'a'",
        ),
        ({"width": {"min": 1, "max": 2.5}}, "max of width's range has to be an integer"),
        ({"wd": {"min": 0, "max": 1, "sampling": "log"}}, "has to be above 0, received 0"),
        (
            {"wd": {"min": 1e-6, "max": 1, "sampling": "log", "step": 1}},
            "has to be a factor above 1 with sampling=log",
        ),
        ({"width": {"min": 1, "max": 4, "step": 0}}, "step of width's range has to be above 0"),
        ({"width": {"min": 1, "max": 4, "sampling": "even"}}, "sampling of width's range has to"),
    ],
)
def test_what_cannot_be_searched_is_refused(ranges, words):
    with pytest.raises(UserError, match=words):
        SearchSpace(ranges, base=BASE)


def test_every_setting_is_tunable_or_told_why_not():
    for field in dataclasses.fields(TrainConfig):
        value = getattr(BASE, field.name)
        if field.name in NOT_TUNED:
            with pytest.raises(UserError, match="cannot be tuned"):
                space(**{field.name: [value]})
        else:
            assert space(**{field.name: [value]}).dimensions[field.name] == Choice((value,))


def test_the_setting_is_named_that_does_not_suit_the_others():
    base = TrainConfig(schedule="exponential", decay_epochs=2)
    with pytest.raises(UserError, match="space of schedule contains constant: decay_epochs=2"):
        SearchSpace(DEFAULT_SPACE, base=base)
    together = {"schedule": ["exponential"], "decay_epochs": [2, 5]}
    assert set(SearchSpace(together, base=TrainConfig()).dimensions) == set(together)


def test_the_default_space_is_one():
    parts = SearchSpace(DEFAULT_SPACE, base=BASE).dimensions
    assert parts["base_lr"] == Range(least=0.001, most=0.05, step=None, sampling="log", whole=False)
    assert parts["batch_size"] == Choice((16, 32, 64, 128))


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
    trial_config(BASE, values)
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("optimizer", "rule", "factor"),
    [("sgd", "linear", 4), ("adam", "auto", 2), ("sgd", "none", 1), ("sgd", "sqrt", 2)],
)
def test_the_rate_follows_the_batch_by_its_rule(optimizer, rule, factor):
    base = TrainConfig(batch_size=32, lr_rule=rule)
    config = trial_config(base, {"base_lr": 0.01, "batch_size": 128, "optimizer": optimizer})
    assert config.base_lr == pytest.approx(0.01 * factor)
    assert (config.batch_size, config.optimizer) == (128, optimizer)


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(UserError, match="received momentum=0.9 with optimizer=adam"):
        trial_config(BASE, {"optimizer": "adam", "momentum": 0.9})


def test_a_network_is_searched_in_the_settings_that_it_has():
    space = Search(config=TrainConfig(network="cifar10_net")).space
    assert "dropout" not in space
    assert set(space) == set(DEFAULT_SPACE) - {"dropout"}
    with pytest.raises(UserError, match="network cannot be tuned: each network has settings"):
        Search(space={"network": ["cifar10_net"]})
    with pytest.raises(UserError, match="depth contains 10: depth=10 does nothing with network"):
        Search(space={"depth": [10]}, config=TrainConfig(network="cifar10_net"))
