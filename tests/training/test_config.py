import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.training.config import TrainConfig
from kdist.training.settings import FOLDERS


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
        ({"depth": 4}, "depth has to be from 10 to 1000, received 4"),
        ({"data_dir": 5}, "data_dir has to be a path, received 5"),
        ({"label_smoothing": 1}, "label_smoothing has to be at least 0 and below 1"),
        ({"ema_momentum": 1.5}, "ema_momentum has to be at least 0 and below 1"),
        ({"precision": "int8"}, "precision has to be one of float32"),
        ({"width": 0}, "width has to be from 1 to 200, received 0"),
        ({"width": 1.5}, "an integer"),
        ({"batch_size": -1}, "batch_size has to be from 1 to"),
        ({"epochs": 0}, "epochs has to be from 1 to"),
        ({"patience": 0}, "patience has to be from 1 to"),
        ({"replicas": 0}, "replicas has to be from 1 to"),
        ({"subset": 0}, "subset has to be from 1 to"),
        ({"seed": -1}, "seed has to be from 0 to 2147483647"),
        ({"seed": True}, "an integer"),
        ({"dropout": 1.0}, "dropout has to be at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum has to be at least 0"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum=0.9 with optimizer=adam.*remove"),
        ({"optimizer": "sdg"}, "optimizer has to be one of sgd, momentum"),
        ({"time_budget": 0}, "time_budget has to be above 0"),
        ({"target_accuracy": 1}, "target_accuracy has to be above 0 and below 1"),
        ({"base_lr": 0.0}, "base_lr has to be above 0"),
        ({"base_lr": float("nan")}, "base_lr has to be above 0"),
        ({"base_lr": float("inf")}, "base_lr has to be above 0 and finite, received inf"),
        ({"augment": "no"}, "augment has to be True or False"),
        ({"track": "nosuch"}, "unknown tracker nosuch"),
        ({"track": "wandb", "track_batches": 0}, "track_batches has to be from 1 to"),
        ({"validate": 1}, "validate has to be True or False, received 1"),
        ({"base_lr": "0.1"}, "base_lr has to be a number"),
        ({"wd": -1e-9}, "wd has to be at least 0"),
        ({"target_accuracy": 85}, "target_accuracy has to be above 0 and below 1, received 85"),
        ({"dataset": "mnist"}, "dataset has to be one of fashion_mnist, cifar10, sample"),
        ({"lr_rule": "cubic"}, "lr_rule has to be one of linear"),
        ({"schedule": "steps"}, "schedule has to be one of constant"),
        ({"warmup_epochs": 5, "epochs": 5}, "leaves no epoch at the full learning rate"),
        ({"dataset": "sample", "data_dir": "/data"}, "which comes with kdist"),
        ({"replicas": 10**20}, "replicas has to be from 1 to 64, received 1" + "0" * 20),
        ({"width": 10**40}, "width has to be from 1 to 200, received 1" + "0" * 40),
        ({"batch_size": 60_001}, "batch_size has to be from 1 to 60000, received 60001"),
        ({"depth": 1006}, "depth has to be from 10 to 1000, received 1006"),
        ({"epochs": 2_000_000}, "epochs has to be from 1 to 1000000"),
        ({"base_lr": 10**400}, "base_lr has to be above 0 and finite, received inf"),
        ({"base_lr": -(10**400)}, "base_lr has to be above 0 and finite, received -inf"),
        ({"track": 3}, "unknown tracker 3: known are wandb"),
        ({"track": False}, "unknown tracker False"),
        ({"track": {"wandb": 1}}, "unknown tracker {'wandb': 1}"),
        ({"run_dir": ""}, "run_dir is an empty path: leave it out"),
        ({"run_dir": "a\0b"}, r"run_dir has to be a path in UTF-8 .* received 'a\\x00b'"),
        ({"log_dir": "\udcff"}, r"log_dir has to be a path in UTF-8 .* received '\\udcff'"),
        ({"data_dir": "\ud800"}, "data_dir has to be a path in UTF-8"),
        ({"augmentation": "crop", "shift": 0.1}, "shift=0.1 has no effect if augmentation=crop"),
        ({"augmentation": "cutout", "whole_pixels": True}, "pass another augmentation"),
        (
            {"augmentation": "cutout", "augment": False},
            "if augment=False: leave out augmentation, or leave out augment=False$",
        ),
        ({"schedule": "exponential"}, "schedule=exponential needs decay_epochs"),
        ({"decay_epochs": 3}, "decay_epochs=3.0 has no effect if schedule=constant"),
        (
            {"schedule": "linear", "decay_rate": 0.5},
            "decay_rate=0.5 has no effect if schedule=lin",
        ),
        ({"schedule": "exponential", "decay_epochs": 0}, "decay_epochs has to be above 0"),
        ({"decay_rate": 1.0}, "decay_rate has to be above 0 and below 1"),
        ({"ema_warmup": True}, "ema_warmup=True has no effect if ema_momentum=None"),
    ],
)
def test_values_out_of_range_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        TrainConfig(**values)


def test_an_unknown_setting_is_named_beside_the_known_ones():
    with pytest.raises(UserError, match=r"widht: did you mean width\? known are dataset.*width"):
        TrainConfig.from_dict({"widht": 2})


def test_what_may_be_shared_holds_no_path():
    shared = TrainConfig(width=4).shareable_settings()
    assert shared["width"] == 4
    assert {"data_dir", "run_dir", "log_dir"} == FOLDERS
    assert not FOLDERS & set(shared)
