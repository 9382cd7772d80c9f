"""What a sweep or a search trains on, where its data set is found at one time only."""

import dataclasses
import functools
import json
import sys

import pytest
from kdist.data import fashion_mnist
from kdist.data.datasets import DATASETS
from kdist.errors import UserError
from kdist.study import Search
from kdist.study import sweep_process as worker
from kdist.study.folder import StudyFolder
from kdist.study.search_processes import Role
from kdist.study.search_run import load_tuner
from kdist.training.config import TrainConfig
from kdist.training.images import describe_images, load_same_images

CONFIG = TrainConfig()
SAMPLE = fashion_mnist(sample=True, announce=lambda _: None)
FULL = dataclasses.replace(SAMPLE.subset(6_000), source="the cache")  # fewer will do here
FOUND = {"sample": SAMPLE, "full": FULL}
OTHERS = (
    r"found 10000 training and 2000 validation images \(the embedded sample\), but earlier runs had"
    r" 6000 and 2000 \(the cache\): .*--dataset sample or --data-dir"
)


@pytest.fixture
def finds(monkeypatch):
    """Has the data set found, or the sample instead of it."""

    def found(name):
        load = dataclasses.replace(DATASETS["fashion_mnist"], load=lambda *_: FOUND[name])
        monkeypatch.setitem(DATASETS, "fashion_mnist", load)

    return found


load = functools.partial(load_same_images, announce=lambda _: None)


def test_earlier_runs_decide(finds):
    finds("full")
    assert load(CONFIG, {}) is FULL
    assert load(CONFIG, {"data": "unknown", "training_images": None}) is FULL
    assert load(CONFIG, {**describe_images(FULL), "data": "elsewhere"}) is FULL
    again = load(CONFIG, describe_images(SAMPLE))
    assert (again.source, len(again.train_images)) == (SAMPLE.source, 10_000)
    finds("sample")
    with pytest.raises(UserError, match=OTHERS):
        load(CONFIG, describe_images(FULL))
    small = TrainConfig(subset=100)  # the same images of both
    assert len(load(small, describe_images(FULL.subset(100))).test_images) == 100


def point(folder, status, data):
    """The folder of a point that has ended."""
    (folder / "run").mkdir(parents=True)
    (folder / "point.json").write_text(json.dumps({"status": status}))
    (folder / "run" / "summary.json").write_text(json.dumps(describe_images(data)))


def test_a_point_has_the_images_of_those_that_are_done(finds, tmp_path, monkeypatch, capsys):
    order = {"config": {}, "parent": 0, "resume": False}
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "order.json").write_text(json.dumps(order))
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path / "c" / "order.json")])

    class LoadedError(Exception):
        pass

    def train(config, *, load, **_):
        raise LoadedError(load(config).source)

    monkeypatch.setattr("kdist.training.train_run.train", train)
    point(tmp_path / "a", "failed", FULL)
    finds("sample")
    with pytest.raises(LoadedError, match="the embedded sample"):  # as nothing was measured
        worker.main()
    point(tmp_path / "b", "done", FULL)
    with pytest.raises(SystemExit):
        worker.main()
    assert "earlier runs had 6000 and 2000 (the cache)" in capsys.readouterr().err


def test_all_trials_have_the_images_of_the_first(finds, tmp_path):
    folder = StudyFolder(str(tmp_path / "tune"))
    search = Search(output=str(folder.path))

    def images(role=None, **options):
        silent = {"announce": lambda _: None}
        tuner = load_tuner(search, folder, role or Role(), **silent, **options)
        return tuner.hypermodel.data

    finds("sample")
    assert images() is SAMPLE
    finds("full")
    assert len(images().train_images) == 10_000
    assert images(trains=False) is FULL  # as for `tuner_of`
    assert images(Role("chief")) is FULL  # which trains nothing
    (folder.trials / "data.json").unlink()  # of an earlier version
    assert images() is FULL
    finds("sample")
    with pytest.raises(UserError, match=OTHERS):
        images()
