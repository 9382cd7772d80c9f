"""The augmentations of `kdist train`, and that their runs are evaluated alike."""

import dataclasses
import json

import numpy as np
import pytest
from kdist.data import fashion_mnist
from kdist.data.dataset_choices import DATASETS
from kdist.data.image_data import ImageData, Standardization
from kdist.tools.evaluate import evaluate
from kdist.training.config import TrainConfig, make_plan
from kdist.training.model_and_data import make_pipelines
from kdist.training.run import train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_graph_optimizer_in_module")]


@pytest.mark.parametrize("augmentation", ["crop", "cutout"])
def test_a_run_is_evaluated_as_it_was_validated(augmentation, tmp_path, monkeypatch):
    images = fashion_mnist(sample=True, announce=[].append).subset(48)
    few = dataclasses.replace(DATASETS["sample"], load=lambda *_: images)
    monkeypatch.setitem(DATASETS, "sample", few)
    folder = tmp_path / "run"
    sizes = {"depth": 10, "width": 1, "batch_size": 48, "replicas": 1, "epochs": 1}
    config = TrainConfig(dataset="sample", run_dir=str(folder), augmentation=augmentation, **sizes)
    lines = []
    result = train(config, announce=lines.append, verbose=0)
    assert any(line.split() == ["model", "WRN-10-1"] for line in lines)
    assert json.loads((folder / "summary.json").read_text())["parameters"] == 78_378
    (found,) = evaluate(result.run_dir, announce=lines.append)
    assert found.metrics["accuracy"] == pytest.approx(result.val_accuracy, abs=1e-6)
    assert found.metrics["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-4)


def make_data(channels):
    images = np.random.default_rng(0).integers(0, 256, (12, 32, 32, channels)).astype(np.uint8)
    labels = np.arange(12) % 2
    return ImageData(
        name="made", source="made", train_images=images, train_labels=labels, test_images=images,
        test_labels=labels, class_names=("a", "b"),
    )  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augmentation", ["shift", "crop", "cutout"])
def test_batches_of_each_augmentation(augmentation, channels):
    config = TrainConfig(augmentation=augmentation, batch_size=8)
    images = make_data(channels)
    training, validation = make_pipelines(config, images, make_plan(config, replicas=1))
    (first, _), *_ = training.as_numpy_iterator()
    tested = np.concatenate([batch for batch, _ in validation.as_numpy_iterator()])
    assert first.shape == (8, 32, 32, channels)
    pixels, axes = np.float64(images.test_images), (0, 1, 2)
    expected = (pixels - pixels.mean(axes)) / pixels.std(axes)
    np.testing.assert_allclose(tested, expected, rtol=1e-4, atol=1e-4)


def test_crops_are_windows_of_the_reflected_image():
    config = TrainConfig(augmentation="crop", batch_size=12)
    data = make_data(1)
    training, _ = make_pipelines(config, data, make_plan(config, replicas=1))
    (images, labels), *_ = training.as_numpy_iterator()
    standardize = Standardization.of(data.train_images)
    whole = np.pad(standardize(data.train_images), ((0, 0), (4, 4), (4, 4), (0, 0)), "reflect")
    assert sorted(labels) == sorted(data.train_labels)
    for image in images:
        windows = (
            flipped[top : top + 32, left : left + 32]
            for source in whole
            for flipped in (source, source[:, ::-1])
            for top in range(9)
            for left in range(9)
        )
        assert any(np.allclose(image, window, atol=1e-5) for window in windows)


@pytest.mark.parametrize("channels", [1, 3])
def test_cutout_covers_a_square_of_a_crop_with_the_mean_color(channels):
    data = make_data(channels)

    def first(augmentation):
        config = TrainConfig(augmentation=augmentation, batch_size=12)
        training, _ = make_pipelines(config, data, make_plan(config, replicas=1))
        return next(training.as_numpy_iterator())

    (crops, labels), (images, same) = first("crop"), first("cutout")
    np.testing.assert_array_equal(labels, same)
    covered = np.abs(images).max(-1) < 1e-5
    assert (covered.sum((1, 2)) == 12 * 12).all()
    assert (covered.any(1).sum(1) == 12).all()
    np.testing.assert_array_equal(images[~covered], crops[~covered])
