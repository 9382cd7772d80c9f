"""`IteratorHistory`: the iterators that Keras makes, and the batches read of them."""

from types import SimpleNamespace

import pytest
from kdist._upstream.resumed_data import IteratorHistory


@pytest.mark.parametrize(
    ("batches", "steps_per_epoch", "steps_per_execution", "expected"),
    [
        # Every epoch ends with an iterator that nobody reads.
        (5, None, 2, [(0, 0, 6), (0, None, 0), (1, 1, 6), (1, None, 0), (2, 2, 6), (2, None, 0)]),
        # Epochs read on, and one that runs out of data is short.
        (5, 2, 1, [(0, 0, 5), (2, None, 0)]),
        (None, 4, 3, [(0, 0, 18)]),
        (None, None, 1, [(0, 0, None), (1, 1, None), (2, 2, None)]),
    ],
)
def test_three_epochs_make_iterators(batches, steps_per_epoch, steps_per_execution, expected):
    found = IteratorHistory(
        SimpleNamespace(
            _num_batches=batches,
            steps_per_epoch=steps_per_epoch,
            steps_per_execution=steps_per_execution,
        ),
        epochs=3,
    )
    assert [(use.epoch, use.read_from, use.batches) for use in found.iterators] == expected
    assert found.current is (found.iterators[-1] if steps_per_epoch else None)
