import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream.iterators import copy_batches
from replicas import assert_equal, stock_mirrored


def aligned(rows, columns, dtype="float64"):
    """A NumPy array on whose memory TensorFlow makes a tensor without a copy."""
    size = rows * columns * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, "uint8")
    start = -memory.ctypes.data % 64
    array = memory[start : start + size].view(dtype).reshape(rows, columns)
    array[:] = np.arange(rows * columns).reshape(rows, columns)
    return array


def trained_rows(strategy, array):
    """Take a step in place on either half of an array that a generator gives."""
    halves = tf.data.Dataset.from_generator(
        lambda: iter(np.split(array, 2)),
        output_signature=tf.TensorSpec((None, array.shape[1]), array.dtype),
    )
    iterator = iter(strategy.experimental_distribute_dataset(halves))

    @tf.function
    def step():
        return strategy.run(lambda rows: tf.reduce_sum(tf.exp(-rows) + 1), (next(iterator),))

    return [sum(strategy.experimental_local_results(step())).numpy() for _ in range(2)]


def test_a_step_leaves_the_users_array_alone():
    array = aligned(16, 8)
    before = array.copy()
    sums = trained_rows(kdist.MirroredStrategy(replicas=2), array)
    np.testing.assert_array_equal(array, before)
    assert sums == pytest.approx([(np.exp(-half) + 1).sum() for half in np.split(before, 2)])


def test_tensorflow_overwrites_a_users_array():
    """The upstream test: a slice of a tensor on NumPy's memory is computed on in place."""
    array = aligned(16, 8)
    before = array.copy()
    trained_rows(stock_mirrored(), array)
    assert (array != before).any()


class Halves(keras.utils.PyDataset):
    def __init__(self, x):
        super().__init__()
        self.halves = np.split(x, 2)

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.halves[index], np.ones((len(self.halves[index]), 1), "float32")


@pytest.mark.parametrize("way", ["PyDataset", "train_on_batch"])
def test_training_leaves_the_users_array_alone(way):
    array = aligned(16, 16, "float32")
    before = array.copy()
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Rescaling(2.0, 1.0), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    if way == "PyDataset":
        model.fit(Halves(array), epochs=2, shuffle=False, verbose=0)
    else:
        model.train_on_batch(array, np.ones((16, 1), "float32"))
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(
    "element",
    [
        np.float32(1),
        (np.ones(2, "float32"),),
        (np.ones(2), {"a": np.array([b"text"]), "b": (np.array([True]), np.int32(3))}),
        {"a": np.ones((2, 1), "float16")},
        tf.ragged.constant([[1], [2, 3]]),
        tf.sparse.from_dense([[0.0, 1.0]]),
    ],
    ids=["scalar", "one in a tuple", "nested", "dict", "ragged", "sparse"],
)
def test_elements_keep_their_structure(element):
    dataset = tf.data.Dataset.from_tensors(element)
    copied = copy_batches(dataset)
    assert copied.element_spec == dataset.element_spec
    assert copied.cardinality() == 1
    ours, theirs = (
        [leaf.numpy() for leaf in tf.nest.flatten(next(iter(made)), expand_composites=True)]
        for made in (copied, dataset)
    )
    assert_equal(ours, theirs)
