"""The network that whitens its input: its parameters and its function, by hand; its arguments."""

import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.models import WhitenedNet, whitening_kernel
from keras import ops

SMALL = {"width": 2, "input_shape": (9, 10, 3), "classes": 4}


@pytest.fixture(scope="module")
def images():
    """Of neighbors that are alike, as those of photographs."""
    noise = np.random.default_rng(0).normal(size=(200, 9, 10, 3))
    return np.cumsum(noise, axis=2) / 3


def whitened(kernel, images):
    patches = np.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(1, 2))
    return np.einsum("nhwcij,ijcf->nhwf", patches, kernel)


def test_parameters_by_hand():
    model = WhitenedNet(input_shape=(32, 32, 3), classes=10)
    convolutions = [(24, 64), (64, 64), (64, 256), (256, 256), (256, 256), (256, 256)]
    trained = sum(9 * before * after + after for before, after in convolutions) + 24 + 2560
    assert sum(np.prod(w.shape) for w in model.trainable_variables) == trained == 1_971_352
    assert len(model.non_trainable_variables) == 1 + 2 * 6
    assert model.get_layer("stage3_activation2").output.shape == (None, 3, 3, 256)


def test_parameters_of_deeper_stages_by_hand():
    model = WhitenedNet(96, stage_depth=3, input_shape=(32, 32, 3), classes=10)
    pairs = [(24, 96), *[(96, 96)] * 2, (96, 384), *[(384, 384)] * 5]
    trained = sum(9 * before * after + after for before, after in pairs) + 24 + 3840
    assert sum(np.prod(w.shape) for w in model.trainable_variables) == trained == 7_160_376


def test_the_first_half_of_the_filters_whitens(images):
    kernel = whitening_kernel(images)
    assert kernel.shape == (2, 2, 3, 24)
    outputs = whitened(kernel, images).reshape(-1, 24)
    moments = outputs[:, :12].T @ outputs[:, :12] / len(outputs)
    np.testing.assert_allclose(moments, np.diag(np.diag(moments)), atol=1e-5)
    assert np.all(np.diff(np.diag(moments)) <= 1e-6)  # the largest eigenvalues first
    assert 0.99 < np.diag(moments)[-1] <= np.diag(moments)[0] <= 1.0  # by epsilon less
    np.testing.assert_array_equal(kernel[..., 12:], -kernel[..., :12])


def test_patches_without_variance_are_not_blown_up():
    kernel = whitening_kernel(np.ones((2, 4, 4, 1)))
    assert np.abs(kernel).max() <= 1 / np.sqrt(5e-4) + 1e-3
    assert np.isfinite(kernel).all()


def test_convolutions_pass_their_input_on(images):
    model = WhitenedNet(**SMALL, whitening=whitening_kernel(images))
    x = np.random.default_rng(1).normal(size=(2, 5, 5, 2)).astype("float32")
    conv = model.get_layer("stage1_conv2")
    np.testing.assert_allclose(conv(x), x, atol=1e-6)
    wider = model.get_layer("stage2_conv1")
    np.testing.assert_allclose(wider(x)[..., :2], x, atol=1e-6)
    assert np.abs(wider(x)[..., 2:]).max() > 0.01
    narrower = model.get_layer("stage1_conv1")  # of 24 channels, the first two
    many = np.random.default_rng(1).normal(size=(2, 5, 5, 24)).astype("float32")
    np.testing.assert_allclose(narrower(many), many[..., :2], atol=1e-6)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_it_computes_what_it_says(images, depth):
    keras.utils.set_random_seed(0)
    kernel = whitening_kernel(images)
    model = WhitenedNet(**SMALL, stage_depth=depth, whitening=kernel, classifier_activation=None)
    random = np.random.default_rng(0)
    weights = {w.path: w for w in model.weights}
    for path, w in weights.items():
        if not path.startswith("whitening/"):
            w.assign(random.uniform(0.5, 1, w.shape) - 0.4)
    x = images[:3].astype("float32")
    h = whitened(kernel, x) + weights["whitening_bias/bias"].numpy()
    h = ops.gelu(ops.convert_to_tensor(h, "float32"), approximate=False)
    shortcut = None
    for stage in (1, 2, 3):
        for number in range(1, depth + 1):
            one = f"stage{stage}_{{}}{number}/{{}}"
            h = ops.conv(h, weights[one.format("conv", "kernel")], padding="same")
            h = ops.max_pool(h, 2, padding="valid") if number == 1 else h
            mean = weights[one.format("bn", "moving_mean")]
            deviation = np.sqrt(weights[one.format("bn", "moving_variance")] + np.float32(1e-5))
            h = (h - mean) / deviation + 8 * weights[one.format("bias", "bias")]
            h = ops.gelu(h + shortcut if number == depth > 2 else h, approximate=False)
            shortcut = h if number == 1 else shortcut
    expected = ops.matmul(ops.max(h, (1, 2)), weights["classifier/kernel"]) / 9
    np.testing.assert_allclose(model(x), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"width": 0}, "width=0"),
        ({"stage_depth": 1}, "stage_depth=1 is not an integer ≥ 2"),
        ({"classes": 0}, "classes=0"),
        ({"input_shape": (8, 9, 3)}, "at least 9"),
        ({"input_shape": (None, None, 3)}, "height and width"),
        ({"weight_decay": -1}, "weight_decay=-1"),
        ({"bias_factor": 0}, "factor=0"),
        ({"logit_scale": 0}, "logit_scale=0"),
        ({"whitening": np.zeros((2, 2, 1, 8))}, r"expected \(2, 2, 3, filters\)"),
    ],
)
def test_arguments(arguments, words):
    with pytest.raises(UserError, match=words):
        WhitenedNet(**{**SMALL, **arguments})


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (4, 4, 3), (2, 1, 4, 3)])
def test_images_without_patches(shape):
    with pytest.raises(UserError, match="have no patches of 2x2 pixels"):
        whitening_kernel(np.zeros(shape))
