"""Cases that nobody thought of: hypothesis puts model, optimizer, loss and sizes together."""

import harness
import kdist
import keras
import numpy as np
import pytest
import samples
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from optimizer_cases import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

HIDDEN = {
    "dense": lambda: keras.layers.Dense(5, activation="tanh"),
    "regularized": lambda: keras.layers.Dense(
        5, kernel_regularizer="l2", activity_regularizer="l2", bias_constraint="non_neg"
    ),
    "batch norm": lambda: keras.layers.BatchNormalization(synchronized=True, momentum=0.8),
    "layer norm": keras.layers.LayerNormalization,
    "frozen": lambda: keras.layers.Dense(6, activation="relu", trainable=False),
    "dropout": lambda: keras.layers.Dropout(0.3),
    "noise": lambda: keras.layers.GaussianNoise(0.1),
}
AUGMENTATIONS = {
    "flip": lambda: keras.layers.RandomFlip(),
    "shift": lambda: keras.layers.RandomTranslation(0.5, 0.5),
    "contrast": lambda: keras.layers.RandomContrast(0.5, value_range=(-20, 20)),
}
CLIPPING = [{}, {"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.02}]
EXTRAS = [{}, {"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}]
# These take no such options, or start from what the model was when the optimizer was built.
NOT_DRAWN = {"LossScaleOptimizer", "MultiOptimizer", "ScheduleFreeAdamW"}
# A bias in front of batch norm has no gradient but rounding, from which these make a whole step.
NOT_BEFORE_BATCH_NORM = {"Adafactor", "Lamb", "Lion", "Muon", "NovoGrad"}
REDUCTIONS = ["sum_over_batch_size", "sum", "mean_with_sample_weight", "none"]


@st.composite
def cases(draw):
    hidden = draw(st.lists(st.sampled_from(sorted(HIDDEN)), min_size=1, max_size=3))
    left_out = NOT_DRAWN | (NOT_BEFORE_BATCH_NORM if "batch norm" in hidden else set())
    augmentation = draw(st.sampled_from([None, *AUGMENTATIONS]))
    optimizer = draw(st.sampled_from(sorted(OPTIMIZERS.keys() - left_out)))
    options = {**draw(st.sampled_from(CLIPPING)), **draw(st.sampled_from(EXTRAS))}
    # Keras adds a regularization loss, one number, to no vector of losses.
    reduction = draw(st.sampled_from(REDUCTIONS[: -1 if "regularized" in hidden else None]))
    count = draw(st.integers(1, 30))
    batch = draw(st.integers(1, 12).filter(lambda size: count / size <= 8))
    weighted = draw(st.booleans())
    feed = draw(st.sampled_from([samples.arrays, samples.dataset, samples.py_dataset]))
    steps = draw(st.sampled_from([1, 2])) if feed is not samples.py_dataset else 1
    note(f"{augmentation} {hidden} {optimizer} {options} {reduction} {weighted}")
    note(f"{count}/{batch} {feed} {steps}")

    def model():
        x = inputs = keras.Input((6,))
        if augmentation:
            x = keras.layers.Reshape((2, 3, 1))(x)
            x = keras.layers.Flatten()(AUGMENTATIONS[augmentation]()(x))
        for name in hidden:
            x = HIDDEN[name]()(x)
        return keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="classes")(x))

    def decorated():
        made = OPTIMIZERS[optimizer]()
        return type(made).from_config({**made.get_config(), **options})

    def compiled():
        loss = keras.losses.SparseCategoricalCrossentropy(reduction=reduction)
        return {"loss": loss, "steps_per_execution": steps}

    return harness.Case(
        model=model,
        optimizer=decorated,
        compile=compiled,
        samples=count,
        batch=batch,
        weights=(lambda size: np.linspace(0.2, 3, size)) if weighted else None,
        feed=feed,
        scored=False,
        # Adaptive steps divide by small numbers, which makes rounding larger.
        tolerance=1e-7,
    )


# No shrinking: an example takes seconds, and names its parts.
@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(case=cases(), replicas=st.integers(2, 4))
def test_anything_put_together_is_the_same_on_several_replicas(case, replicas):
    got = harness.train(case, kdist.MirroredStrategy(replicas=replicas))
    harness.assert_same(case, harness.train(case), got)
