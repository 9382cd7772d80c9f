"""A sweep or search whose data set cannot be found: its runs need the same images."""

import dataclasses
import io

import pytest
from kdist.data import fashion_mnist
from kdist.data.dataset_choices import DATASETS
from kdist.errors import UserError
from kdist.study.sweep_kinds import ThroughputSweep
from kdist.study.sweep_run import sweep
from kdist.training.config import TrainConfig
from kdist.training.run import load_data
from rich.console import Console

SAMPLE = fashion_mnist(sample=True, announce=lambda _: None)
FULL = dataclasses.replace(SAMPLE.subset(6_000), source="the cache")  # fewer will do here
MISSING = "fashion_mnist was not found and could not be downloaded: pass --data-dir, the"


@pytest.fixture
def finds(monkeypatch):
    """Has Fashion-MNIST found, or the sample instead of it."""

    def found(data):
        entry = dataclasses.replace(DATASETS["fashion_mnist"], load=lambda *_: data)
        monkeypatch.setitem(DATASETS, "fashion_mnist", entry)

    return found


def load(**settings):
    return load_data(TrainConfig(**settings), announce=lambda _: None, may_use_sample=False)


def test_the_sample_takes_no_other_sets_place(finds):
    finds(FULL)
    assert load() is FULL
    finds(SAMPLE)
    assert load_data(TrainConfig(), announce=lambda _: None) is SAMPLE
    for settings in ({}, {"subset": 100}):
        with pytest.raises(UserError, match=MISSING):
            load(**settings)
    assert load(dataset="sample").source == SAMPLE.source


def test_a_sweep_ends_before_its_first_point(finds, tmp_path):
    def run(*_):
        raise AssertionError("nothing is to be run, and no device to be listed")

    finds(SAMPLE)
    with pytest.raises(UserError, match=MISSING):
        sweep(
            ThroughputSweep(train={"depth": 10}),
            output=str(tmp_path / "out"),
            start=run,
            machine=run,
            console=Console(file=io.StringIO()),
        )
    assert not (tmp_path / "out").exists()
