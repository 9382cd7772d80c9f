"""Rows drawn from the counter where they begin: those of the whole draw, however it is divided."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist import _upstream

SEED = 11


@pytest.fixture(autouse=True, scope="module")
def patched():
    _upstream.patches.install_for_workers()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """The `rows` rows from `first_row` on of a batch of `global_rows`."""

    rows: Any
    first_row: Any
    global_rows: Any
    static_rows: int | None

    def mark(self, value: Any, kind: str) -> Any:
        return value


FLOATS = ("float16", "bfloat16", "float32", "float64")
DRAWS = {
    **{f"uniform {kind}": functools.partial(keras.random.uniform, dtype=kind) for kind in FLOATS},
    **{f"normal {kind}": functools.partial(keras.random.normal, dtype=kind) for kind in FLOATS},
    **{
        f"truncated normal {kind}": functools.partial(keras.random.truncated_normal, dtype=kind)
        for kind in FLOATS
    },
    **{
        f"integers {kind}": functools.partial(
            keras.random.randint, minval=-5, maxval=1000, dtype=kind
        )
        for kind in ("int32", "int64")
    },
    "gamma": functools.partial(keras.random.gamma, alpha=0.7),
    "binomial": functools.partial(keras.random.binomial, counts=5.0, probabilities=0.3),
}


def numbers(tensor):
    return tf.cast(tensor, "float64").numpy()


def first_rows(counts):
    return np.cumsum([0, *counts[:-1]]).tolist()


def drawn_by_parts(draw, counts, inner):
    """With sizes that are known."""
    parts = []
    for count, first in zip(counts, first_rows(counts), strict=True):
        part = Part(rows=count, first_row=first, global_rows=sum(counts), static_rows=count)
        with _upstream.activate(part):
            parts.append(numbers(draw((count, *inner), seed=SEED)))
    return np.concatenate(parts)


def graphs_of(draw, **options):
    """`draw(x)` for a part of a batch, as a graph that knows no sizes, by the rank of x."""

    @functools.partial(tf.function, autograph=False, **options)
    def drawn(x, first, total):
        rows = tf.shape(x, "int64")[0]
        part = Part(rows=rows, first_row=first, global_rows=total, static_rows=None)
        with _upstream.activate(part):
            return draw(x)

    number = tf.TensorSpec((), "int64")
    return {
        rank: drawn.get_concrete_function(tf.TensorSpec([None] * rank), number, number)
        for rank in (1, 2, 3)
    }


@functools.cache
def graphs(name, **options):
    return graphs_of(lambda x: DRAWS[name](tf.shape(x), seed=SEED), **options)


def drawn_in_graphs(graphs, counts, inner):
    """What each part draws for itself."""
    return [
        numbers(
            graphs[1 + len(inner)](
                tf.zeros((count, *inner)),
                tf.constant(first, "int64"),
                tf.constant(sum(counts), "int64"),
            )
        )
        for count, first in zip(counts, first_rows(counts), strict=True)
    ]


divisions = st.lists(st.integers(0, 5), min_size=1, max_size=5)
inner_shapes = st.lists(st.integers(1, 9) | st.sampled_from([64, 300]), max_size=2).map(tuple)


@pytest.mark.parametrize("name", DRAWS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=divisions, inner=inner_shapes)
def test_the_parts_together_are_the_whole(name, counts, inner):
    whole = numbers(DRAWS[name]((sum(counts), *inner), seed=SEED))
    np.testing.assert_array_equal(drawn_by_parts(DRAWS[name], counts, inner), whole)
    in_graphs = drawn_in_graphs(graphs(name), counts, inner)
    np.testing.assert_array_equal(np.concatenate(in_graphs), whole)


# With a parameter for every value, which the other parts do not know.
OF_LOGITS = {
    "gamma": lambda x: keras.random.gamma(tf.shape(x), alpha=x + 0.5, seed=SEED),
    "binomial": lambda x: keras.random.binomial(tf.shape(x), x + 3, tf.sigmoid(x), seed=SEED),
    "poisson": lambda x: tf.random.stateless_poisson(tf.shape(x), [SEED, 0], x + 1),
    "categorical": lambda x: keras.random.categorical(x, 4, seed=SEED),
}


@pytest.mark.parametrize("name", OF_LOGITS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=divisions.filter(any), columns=st.integers(1, 5))
def test_what_is_drawn_for_values(name, counts, columns):
    values = np.random.default_rng(0).uniform(size=(sum(counts), columns)).astype("float32")
    parts = []
    for count, first in zip(counts, first_rows(counts), strict=True):
        part = Part(rows=count, first_row=first, global_rows=sum(counts), static_rows=count)
        if count:
            with _upstream.activate(part):
                parts.append(OF_LOGITS[name](tf.constant(values[first : first + count])))
    np.testing.assert_array_equal(np.concatenate(parts), OF_LOGITS[name](tf.constant(values)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=divisions.filter(any), inner=st.integers(1, 9), batches=st.integers(2, 3))
def test_batches_one_behind_the_other(counts, inner, batches):
    def draw(x):
        stacked = tf.concat([x, *[tf.nn.relu(-x)] * (batches - 1)], axis=0)
        return keras.random.normal(tf.shape(stacked), seed=SEED)

    parts = drawn_in_graphs(graphs_of(draw), counts, (inner,))
    by_batch = [np.split(part, batches) for part in parts]
    got = np.concatenate([half for halves in zip(*by_batch, strict=True) for half in halves])
    whole = keras.random.normal((batches * sum(counts), inner), seed=SEED)
    np.testing.assert_array_equal(got, numbers(whole))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(counts=divisions.filter(any), steps=st.integers(1, 4), inner=st.integers(1, 5))
def test_several_rows_a_sample_stay_together(counts, steps, inner):
    def draw(x):
        return keras.random.normal(tf.shape(tf.reshape(x, (-1, inner))), seed=SEED)

    parts = drawn_in_graphs(graphs_of(draw), counts, (steps, inner))
    whole = keras.random.normal((steps * sum(counts), inner), seed=SEED)
    np.testing.assert_array_equal(np.concatenate(parts), numbers(whole))


@pytest.mark.parametrize("shape", [(), (3,), (1, 6), (7, 6)])
def test_other_shapes_are_drawn_alike_by_every_part(shape):
    def draw(x):
        return keras.random.normal(shape, seed=SEED)

    whole = numbers(keras.random.normal(shape, seed=SEED))
    for part in drawn_in_graphs(graphs_of(draw), [2, 0, 5], (6,)):
        np.testing.assert_array_equal(part, whole)


# XLA's normal numbers do not follow the place.
@pytest.mark.parametrize("name", ["uniform float32", "uniform float64", "integers int64"])
@pytest.mark.parametrize("inner", [(4,), (7, 3)])
def test_xla_draws_uniform_rows_by_place(name, inner):
    counts = [3, 2, 0, 4]
    whole = tf.function(lambda: DRAWS[name]((sum(counts), *inner), seed=SEED), jit_compile=True)
    in_graphs = drawn_in_graphs(graphs(name, jit_compile=True), counts, inner)
    np.testing.assert_array_equal(np.concatenate(in_graphs), numbers(whole()))
