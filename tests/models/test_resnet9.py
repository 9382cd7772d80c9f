"""ResNet-9: its parameters, its function by Keras's own operations, its arguments."""

import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.models import ResNet9
from keras import ops

SMALL = {"width": 2, "input_shape": (9, 8, 3), "classes": 4}


@pytest.mark.parametrize(("width", "channels", "classes"), [(64, 3, 10), (3, 1, 7)])
def test_parameters_by_hand(width, channels, classes):
    model = ResNet9(width, input_shape=(32, 32, channels), classes=classes)
    w = width
    convolutions = [(channels, w), (w, 2 * w), (2 * w, 2 * w), (2 * w, 2 * w)]
    convolutions += [(2 * w, 4 * w), (4 * w, 8 * w), (8 * w, 8 * w), (8 * w, 8 * w)]
    trainable = sum(9 * before * after + 2 * after for before, after in convolutions)
    trainable += 8 * w * classes
    assert sum(np.prod(weight.shape) for weight in model.trainable_variables) == trainable
    assert len(model.trainable_variables) == 8 * 3 + 1
    if width == 64:
        assert trainable == 6_573_120


def by_hand(weights, x, scale):
    """The description, in order, for batch norms that have not been trained."""
    weights = iter(weights)

    def conv(x, pool=False):
        kernel, gamma, beta, mean, variance = (next(weights) for _ in range(5))
        x = ops.conv(x, kernel, padding="same")
        x = ops.relu((x - mean) / np.sqrt(variance + 1e-5) * gamma + beta)
        return ops.max_pool(x, 2, padding="valid") if pool else x

    x = conv(conv(x), pool=True)
    x = x + conv(conv(x))
    x = conv(conv(x, pool=True), pool=True)
    x = x + conv(conv(x))
    return scale * ops.matmul(ops.max(x, (1, 2)), next(weights))


def test_it_computes_what_it_says():
    keras.utils.set_random_seed(0)
    model = ResNet9(**SMALL, classifier_activation=None, logit_scale=0.3)
    random = np.random.default_rng(0)
    model.set_weights([random.uniform(0.5, 1, weight.shape) - 0.4 for weight in model.weights])
    x = random.normal(size=(3, 9, 8, 3)).astype(np.float32)
    expected = by_hand(model.get_weights(), x, 0.3)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4)
    probable = ResNet9(**SMALL, logit_scale=0.3)
    probable.set_weights(model.get_weights())
    np.testing.assert_allclose(probable(x), ops.softmax(expected), rtol=1e-4, atol=1e-6)


def test_layer_names_do_not_depend_on_what_was_built_before():
    first, second = ResNet9(**SMALL), ResNet9(**SMALL)
    assert [w.path for w in first.weights] == [w.path for w in second.weights]
    assert "stage3_block2_conv/kernel" in [w.path for w in first.weights]


def test_channels_first_has_the_same_weights():
    first = ResNet9(**{**SMALL, "input_shape": (3, 9, 8)}, data_format="channels_first")
    assert [w.shape for w in first.weights] == [w.shape for w in ResNet9(**SMALL).weights]
    assert first.get_layer("stage3_block_add").output.shape == (None, 16, 1, 1)
    assert first.get_layer("stem_bn").axis == 1


def test_arguments():
    model = ResNet9(**SMALL, activation="gelu", weight_decay=0.5)
    assert model.get_layer("stage2_activation").activation is keras.activations.gelu
    kernels = [w.numpy() for w in model.trainable_variables if w.path.endswith("kernel")]
    expected = 0.5 * sum(np.square(kernel, dtype=float).sum() for kernel in kernels)
    assert sum(float(loss) for loss in model.losses) == pytest.approx(expected, rel=1e-5)
    varying = ResNet9(width=1, input_shape=(None, None, 3), classes=2)
    assert varying(np.zeros((1, 17, 8, 3))).shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"width": 0}, "width=0 is not an integer ≥ 1"),
        ({"input_shape": (7, 8, 3)}, "integers ≥ 8, as they are halved three times, or None"),
        ({"logit_scale": 0}, "logit_scale=0 is not a number > 0"),
        ({"weight_decay": "1"}, "weight_decay='1' is not a number ≥ 0"),
        ({"data_format": "nhwc"}, "data_format='nhwc' is neither"),
    ],
)
def test_an_argument_out_of_range_is_an_error(options, why):
    with pytest.raises(UserError, match=why):
        ResNet9(**{**SMALL, **options})
