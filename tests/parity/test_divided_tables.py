"""Embeddings whose table is divided over the replicas: rows are looked up where they lie."""

import functools

import harness
import kdist
import keras
import pytest
import samples
import tensorflow as tf
from harness import Case
from kdist.spmd import partition
from kdist.spmd.placements import Partial
from kdist.spmd.replica_reductions import ONE_TERM
from kdist.spmd.validation import validate_steps
from keras import layers, optimizers
from samples import WORDS

pytestmark = pytest.mark.usefixtures("without_graph_optimizer", "small")

UNEVEN = 29  # Samples: the last batch of 8 has 5.


def pairs(count):
    x, y = samples.words(count)
    return (x, (x[:, :3] * 5 + 1) % WORDS), y


def embedding(**options):
    return layers.Embedding(WORDS, 4, **options)


def bag(make=embedding, **options):
    inputs = keras.Input((5,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(make(**options)(inputs))
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


def adapted():
    """A frozen table with a trained difference of a low rank."""
    table = embedding()
    model = bag(lambda: table)
    table.enable_lora(2)
    return model


def recurrent():
    inputs = keras.Input((5,), dtype="int32")
    x = layers.LSTM(4)(embedding(mask_zero=True)(inputs))
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


def looked_up_twice():
    inputs = (keras.Input((5,), dtype="int32"), keras.Input((3,), dtype="int32"))
    table = embedding()
    x = layers.concatenate([layers.GlobalAveragePooling1D()(table(each)) for each in inputs])
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


def language_model():
    """The table of the words is also the last kernel."""
    inputs = keras.Input((5,), dtype="int32")
    table = layers.ReversibleEmbedding(WORDS, 4)
    x = layers.Dense(4, activation="tanh")(table(inputs))
    return keras.Model(inputs, layers.Softmax()(table(x, reverse=True)))


def same_words(count):
    x, _ = samples.words(count)
    return x, x


class InALoop(layers.Layer):
    """Looks words up in a loop of TensorFlow."""

    def build(self, shape):
        self.table = self.add_weight(shape=(WORDS, 4), name="table")

    def call(self, x):
        def add(place, total):
            return place + 1, total + tf.gather(self.table, x[:, place])

        start = tf.zeros((tf.shape(x)[0], 4), self.table.dtype)
        total = tf.while_loop(lambda place, _: place < 5, add, (0, start))[1]
        return tf.expand_dims(total, 1)


def rematerialized():
    """Stock Keras cannot train this: one replica trains `bag` instead."""
    is_divided = tf.distribute.has_strategy()
    with keras.RematScope(mode="full" if is_divided else None):
        return bag()


def momentum():
    """Adam's update by rows differs from its update by a dense gradient; this one does not."""
    return optimizers.SGD(0.1, momentum=0.9, nesterov=True)


CASES = {
    "adam": Case(),
    "sgd": Case(optimizer=lambda: optimizers.SGD(0.1)),
    "momentum": Case(optimizer=momentum),
    "adamw": Case(optimizer=lambda: optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True)),
    "clipnorm": Case(optimizer=lambda: optimizers.SGD(0.1, clipnorm=0.01)),
    "global_clipnorm": Case(optimizer=lambda: optimizers.Adam(0.01, global_clipnorm=0.01)),
    "accumulation": Case(optimizer=lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2)),
    "mask_zero": Case(model=functools.partial(bag, mask_zero=True)),
    "recurrent": Case(model=recurrent),
    "frozen": Case(model=functools.partial(bag, trainable=False)),
    "lora": Case(model=adapted, optimizer=momentum, tolerance=1e-7),  # in float32
    "l2": Case(model=functools.partial(bag, embeddings_regularizer=keras.regularizers.L2(0.1))),
    "two_lookups": Case(model=looked_up_twice, data=pairs),
    "remat": Case(model=rematerialized, optimizer=momentum),
    "known_rows": Case(feed=samples.dropping_dataset),
    "arrays": Case(feed=samples.arrays, predicted=True),
    "mixed_bfloat16": Case(policy="mixed_bfloat16", tolerance=2e-3, scored=False),
    "mixed_float16": Case(policy="mixed_float16", tolerance=2e-3, scored=False),
    "tied": Case(model=language_model, data=same_words),
    "loop": Case(model=functools.partial(bag, InALoop), optimizer=momentum),
}
WHOLE = ("loop",)  # The table is gathered.


def case_of(name):
    case = CASES[name]
    changes = {"model": bag} if case.model is Case().model else {}
    changes |= {"data": samples.words} if case.data is samples.classes else {}
    if case.optimizer is harness.sgd:
        changes["optimizer"] = lambda: optimizers.Adam(0.01)
    return harness.dataclasses.replace(case, samples=UNEVEN, **changes)


@functools.cache
def on_one_replica(name):
    return harness.train(case_of(name), run_eagerly=name != "arrays")


@pytest.fixture
def lookups(monkeypatch):
    """Return the lookups in parts of the planned steps."""
    found = []
    original = partition._plan_step

    def plan(*args):
        planned = original(*args)
        found.extend(
            each
            for each in planned[0].operations
            if Partial(ONE_TERM) in each.decision.output_placements
        )
        return planned

    monkeypatch.setattr(partition, "_plan_step", plan)
    return found


def check(name, replicas, lookups, **options):
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_weights=True)
    got = harness.train(case_of(name), strategy, **options)
    harness.assert_same(case_of(name), on_one_replica(name), got)
    assert bool(lookups) == (name not in WHOLE)


ON_THREE = ("adam", "two_lookups", "tied", "lora", "mask_zero", "loop", "arrays")


@pytest.mark.parametrize("name", ON_THREE)
def test_three_replicas_give_what_one_gives(name, lookups):
    check(name, 3, lookups)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replicas"),
    [(name, 2 + number % 3) for number, name in enumerate(CASES) if name not in ON_THREE],
)
def test_two_to_four_replicas_give_what_one_gives(name, replicas, lookups):
    check(name, replicas, lookups)


@pytest.mark.slow
def test_compiled_by_xla(lookups):
    check("adam", 3, lookups, jit_compile=True)


def test_validated(lookups):
    with validate_steps():
        check("sgd", 3, lookups)


def test_a_small_table_is_gathered(lookups):
    """A batch of 16 * 5 words is larger than the table."""
    case = harness.dataclasses.replace(case_of("adam"), batch=16)
    got = harness.train(case, kdist.MirroredStrategy(replicas=2, shard_weights=True))
    assert not lookups
    harness.assert_same(case, harness.train(case, run_eagerly=True), got)


@pytest.mark.parametrize("index", [WORDS, -WORDS - 1])
def test_an_index_out_of_range_is_an_error(index):
    strategy = kdist.MirroredStrategy(replicas=2, shard_weights=True)
    model = strategy.build(bag)
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = samples.words(8)
    x[5, 2] = index
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"is not in \[0, {WORDS}\)"):
        model.fit(x, y, batch_size=8, verbose=0)
