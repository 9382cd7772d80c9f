import functools
import zipfile

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.models import WideResNet

SMALL = {"depth": 10, "width": 1, "input_shape": (8, 8, 3), "classes": 4}


def counts(model):
    sizes = [sum(int(np.prod(w.shape)) for w in ws) for ws in weight_lists(model)]
    return sizes[0], sizes[1]


def weight_lists(model):
    return model.trainable_weights, model.non_trainable_weights


def expected_counts(depth, width, channels, classes):
    """Trainable and non-trainable parameters by hand, from the description of the network."""

    def conv(size, before, after):
        return size * size * before * after + after

    trainable = conv(3, channels, 16) + 2 * 16
    normalized = 16
    before = 16
    for after in (16 * width, 32 * width, 64 * width):
        for _ in range((depth - 4) // 6):
            trainable += conv(1, before, after) if before != after else 0
            trainable += conv(3, before, after) + conv(3, after, after) + 2 * 2 * after
            normalized += 2 * after
            before = after
    return trainable + before * classes + classes, 2 * normalized


@pytest.mark.parametrize(
    ("shape", "trainable"), [((28, 28, 1), 17_121_962), ((32, 32, 3), 17_122_250)]
)
def test_wrn_16_10_is_the_published_network(shape, trainable):
    model = WideResNet(depth=16, width=10, input_shape=shape, classes=10)
    assert counts(model) == (trainable, 8_992)
    assert model.output_shape == (None, 10)


@settings(max_examples=12, deadline=None)
@given(
    blocks=st.integers(1, 3),
    width=st.integers(1, 3),
    channels=st.integers(1, 4),
    classes=st.integers(1, 12),
)
def test_parameter_count_in_closed_form(blocks, width, channels, classes):
    depth = 6 * blocks + 4
    model = WideResNet(depth, width, input_shape=(8, 8, channels), classes=classes)
    assert counts(model) == expected_counts(depth, width, channels, classes)


def test_stages_halve_the_image_and_widen():
    model = WideResNet(depth=16, width=2, input_shape=(28, 28, 1), classes=10)
    shapes = [model.get_layer(f"stage{s}_block2_add").output.shape for s in (1, 2, 3)]
    assert shapes == [(None, 28, 28, 32), (None, 14, 14, 64), (None, 7, 7, 128)]


def test_a_pooled_stem_halves_the_image_before_the_stages():
    plain = WideResNet(depth=16, width=2, input_shape=(28, 28, 1), classes=10)
    pooled = WideResNet(depth=16, width=2, input_shape=(28, 28, 1), classes=10, stem_pool=True)
    shapes = [pooled.get_layer(f"stage{s}_block2_add").output.shape for s in (1, 2, 3)]
    assert shapes == [(None, 14, 14, 32), (None, 7, 7, 64), (None, 3, 3, 128)]
    assert [w.path for w in pooled.weights] == [w.path for w in plain.weights]
    assert counts(pooled) == counts(plain)
    smallest = WideResNet(**SMALL, stem_pool=True)
    assert smallest.get_layer("stage3_block1_add").output.shape == (None, 1, 1, 64)


def test_first_block_of_a_stage_changes_the_channels_by_a_1x1_convolution():
    names = {layer.name for layer in WideResNet(16, 2, input_shape=(8, 8, 3), classes=4).layers}
    shortcuts = {name for name in names if name.endswith("shortcut")}
    assert shortcuts == {f"stage{s}_block1_shortcut" for s in (1, 2, 3)}
    # At width 1 the first stage keeps the stem's 16 channels.
    names = {layer.name for layer in WideResNet(**SMALL).layers}
    assert "stage1_block1_shortcut" not in names


def test_block_adds_its_branch_to_its_input():
    model = WideResNet(**SMALL, dropout=0.0)
    block = keras.Model(
        model.get_layer("stem_relu").output,
        model.get_layer("stage1_block1_add").output,
    )
    for name in ("stage1_block1_conv1", "stage1_block1_conv2"):
        kernel, bias = model.get_layer(name).get_weights()
        model.get_layer(name).set_weights([np.zeros_like(kernel), np.zeros_like(bias)])
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 16)).astype("float32")
    np.testing.assert_array_equal(block.predict(x, verbose=0), x)


def test_layer_names_do_not_depend_on_what_was_built_before():
    def names(model):
        return [layer.name for layer in model.layers], [w.path for w in model.weights]

    first = WideResNet(**SMALL)
    layers, paths = names(first)
    assert names(WideResNet(**SMALL)) == (layers, paths)
    assert {"stem_conv", "stage1_block1_conv1", "stage3_block1_bn2", "classifier"} <= set(layers)
    assert first.name == "wide_resnet_10_1"
    assert WideResNet(**SMALL, name="mine").name == "mine"


def test_dropout_sits_in_every_block_or_nowhere():
    def rates(model):
        return [la.rate for la in model.layers if isinstance(la, keras.layers.Dropout)]

    assert rates(WideResNet(**SMALL)) == [0.01] * 3
    assert rates(WideResNet(**SMALL, dropout=0.0)) == []


def test_weight_decay_is_the_sum_of_squares_of_every_kernel():
    model = WideResNet(**SMALL, weight_decay=0.5)
    kernels = [w.numpy() for w in model.trainable_weights if w.path.endswith("kernel")]
    expected = 0.5 * sum(float(np.sum(np.square(k, dtype="float64"))) for k in kernels)
    assert len(kernels) == 1 + 3 * 2 + 2 + 1
    assert sum(float(loss) for loss in model.losses) == pytest.approx(expected, rel=1e-5)
    assert WideResNet(**SMALL).losses == []


def test_batch_norm_defaults_and_replacement():
    norm = WideResNet(**SMALL).get_layer("stem_bn")
    assert (type(norm), norm.momentum, norm.epsilon) == (
        keras.layers.BatchNormalization,
        0.9,
        1e-5,
    )
    other = functools.partial(keras.layers.GroupNormalization, groups=4)
    model = WideResNet(**SMALL, batch_norm=other)
    norms = [la for la in model.layers if la.name.split("_")[-1].startswith("bn")]
    assert [type(la) for la in norms] == [keras.layers.GroupNormalization] * 7
    assert model.non_trainable_weights == []


def test_channels_are_last_whatever_keras_is_set_to():
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        model = WideResNet(**SMALL)
    finally:
        keras.config.set_image_data_format(before)
    formats = [layer.data_format for layer in model.layers if hasattr(layer, "data_format")]
    assert {*formats} == {"channels_last"}
    x = np.zeros((2, 8, 8, 3))
    assert model(x).shape == WideResNet(**SMALL)(x).shape


def test_height_and_width_may_vary():
    model = WideResNet(**{**SMALL, "input_shape": (None, None, 3)})
    for side in (4, 9):
        assert model(np.zeros((1, side, side, 3))).shape == (1, 4)


def test_probabilities_or_logits():
    x = np.random.default_rng(0).normal(size=(5, 8, 8, 3)).astype("float32")
    probabilities = WideResNet(**SMALL)
    logits = WideResNet(**SMALL, classifier_activation=None)
    logits.set_weights(probabilities.get_weights())
    z = np.asarray(logits(x), dtype="float64")
    expected = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities(x), expected, atol=1e-6)


@pytest.mark.parametrize(("policy", "dtype"), [("mixed_bfloat16", "float32"), ("float64",) * 2])
def test_classifier_computes_in_the_variable_dtype(policy, dtype):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = WideResNet(**SMALL)
    finally:
        keras.config.set_dtype_policy(before)
    assert model.output.dtype == dtype


def test_training_lowers_the_loss():
    x = np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype("float32")
    y = np.arange(16) % 4
    model = WideResNet(**SMALL)
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    losses = model.fit(x, y, batch_size=16, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2


# Keras's np.array(variable) against NumPy 2.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_file_opens_in_stock_keras(tmp_path):
    model = WideResNet(**SMALL, weight_decay=1e-4)
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 3)).astype("float32")
    model.save(tmp_path / "model.keras")
    assert b"kdist" not in zipfile.ZipFile(tmp_path / "model.keras").read("config.json")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depth": 17}, "depth is 17, but has to be 10, 16"),
        ({"depth": 4}, "depth is 4, but has to be 10, 16"),
        ({"depth": 16.0}, "depth is 16.0, but has to be 10, 16"),
        ({"width": 0}, "width is 0, but has to be an integer of at least 1"),
        ({"width": True}, "width is True"),
        ({"classes": 0}, "classes is 0, but has to be an integer of at least 1"),
        ({"classes": "10"}, "classes is '10'"),
        ({"dropout": 1.0}, "dropout is 1.0, but has to be a number of at least 0 and below 1"),
        ({"dropout": -0.1}, "dropout is -0.1, but"),
        ({"dropout": float("nan")}, "dropout is nan, but"),
        ({"dropout": None}, "dropout is None, but"),
        ({"dropout": "0.1"}, "dropout is '0.1', but"),
        ({"weight_decay": None}, "weight_decay is None, but"),
        ({"weight_decay": -1e-4}, "weight_decay is -0.0001, but"),
        ({"weight_decay": float("nan")}, "weight_decay is nan, but"),
        ({"weight_decay": float("inf")}, "weight_decay is inf, but"),
        ({"input_shape": (28, 28)}, r"\(28, 28\), but has to be \(height, width, channels\)"),
        ({"input_shape": (None, 28, 28, 1)}, "without the batch axis"),
        ({"input_shape": 28}, "such as"),
        ({"input_shape": (28, 28, None)}, "channels an integer of at least 1"),
        ({"input_shape": (3, 28, 28)}, "height and width integers of at least 4, or None"),
        ({"input_shape": (28, 28.0, 1)}, "height and width integers"),
        ({"input_shape": (8, 7, 3), "stem_pool": True}, "integers of at least 8, or None"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(UserError, match=message):
        WideResNet(**{**SMALL, **wrong})
