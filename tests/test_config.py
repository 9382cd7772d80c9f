import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.config import TrainConfig
from kdist.errors import UserError


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "depth": st.integers(1, 10).map(lambda n: 6 * n + 4),
            "width": st.integers(1, 20),
            "replicas": st.none() | st.integers(1, 8),
            "base_lr": st.floats(1e-6, 10),
            "dropout": st.floats(0, 0.99),
            "lr_rule": st.sampled_from(["linear", "sqrt", "none", "auto"]),
            "optimizer": st.sampled_from(["sgd", "momentum", "adam", "adamw", "novograd", "lars"]),
            "time_budget": st.none() | st.floats(1, 1e6),
            "target_train_accuracy": st.none() | st.floats(0.1, 0.9),
        },
    )
)
def test_plain_data_and_back(values):
    config = TrainConfig(**values)
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_numpy_numbers_become_plain_ones():
    config = TrainConfig(replicas=np.int64(2), seed=np.uint8(3), base_lr=np.float32(0.5))
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()
    assert (config.replicas, config.seed, config.base_lr) == (2, 3, 0.5)


def test_the_defaults_are_the_labs():
    config = TrainConfig()
    lab = (config.depth, config.width, config.batch_size, config.base_lr, config.epochs, config.wd)
    assert lab == (16, 10, 32, 0.01, 40, 0.000005)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"depth": 17}, "6n \\+ 4.*received 17: try 16"),
        ({"depth": 4}, "at least 10"),
        ({"data_dir": 5}, "data_dir is the path of a folder, received 5"),
        ({"label_smoothing": 1}, "label_smoothing is at least 0 and below 1"),
        ({"ema_momentum": 1.5}, "ema_momentum is at least 0 and below 1"),
        ({"precision": "int8"}, "precision is one of float32"),
        ({"width": 0}, "width is at least 1, received 0"),
        ({"width": 1.5}, "whole number"),
        ({"batch_size": -1}, "batch_size is at least 1"),
        ({"epochs": 0}, "epochs is at least 1"),
        ({"patience": 0}, "patience is at least 1"),
        ({"replicas": 0}, "replicas is at least 1"),
        ({"subset": 0}, "subset is at least 1"),
        ({"seed": -1}, "seed is from 0"),
        ({"seed": True}, "whole number"),
        ({"dropout": 1.0}, "dropout is at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum is at least 0"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum=0.9 with optimizer=adam.*leave"),
        ({"optimizer": "sdg"}, "optimizer is one of sgd, momentum"),
        ({"time_budget": 0}, "time_budget is above 0"),
        ({"target_train_accuracy": 1}, "target_train_accuracy is above 0 and below 1"),
        ({"schedule": "lab", "warmup_epochs": 15}, "reaches beyond epoch 15"),
        ({"base_lr": 0.0}, "base_lr is above 0"),
        ({"base_lr": float("nan")}, "base_lr is above 0"),
        ({"base_lr": float("inf")}, "base_lr is above 0 and finite, received inf"),
        ({"augment": "no"}, "augment is True or False"),
        ({"log_model": 1}, "log_model is True or False"),
        ({"log_model": True}, "log_model=True does nothing without wandb"),
        ({"track": "mlflow"}, "unknown tracker mlflow"),
        ({"track": "wandb", "track_batches": 0}, "track_batches is at least 1"),
        ({"track": "wandb", "profile_batches": "1,2"}, "does nothing without tensorboard"),
        ({"base_lr": "0.1"}, "base_lr is a number"),
        ({"wd": -1e-9}, "wd is at least 0"),
        ({"target_accuracy": 85}, "target_accuracy is above 0 and below 1, received 85"),
        ({"dataset": "mnist"}, "dataset is one of fashion_mnist, sample"),
        ({"lr_rule": "cubic"}, "lr_rule is one of linear"),
        ({"schedule": "steps"}, "schedule is one of constant"),
        ({"warmup_epochs": 5, "epochs": 5}, "leaves none of epochs=5"),
        ({"dataset": "sample", "data_dir": "/data"}, "the sample is embedded"),
    ],
)
def test_values_out_of_range_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        TrainConfig(**values)


def test_an_unknown_setting_is_named_beside_the_known_ones():
    with pytest.raises(UserError, match="unknown setting widht: there are dataset.*width"):
        TrainConfig.from_dict({"widht": 2})


def test_every_setting_is_documented():
    for field in dataclasses.fields(TrainConfig):
        assert f"        {field.name}: " in TrainConfig.__doc__
