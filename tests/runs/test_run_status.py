import pytest
from kdist.runs.record import run_status


@pytest.mark.parametrize(
    ("summary", "finished", "word", "detail"),
    [
        ({"interrupted": False}, True, "complete", "complete"),
        ({"interrupted": False, "diverged": None}, True, "complete", "complete"),
        ({"interrupted": True}, True, "interrupted", "interrupted"),
        (
            {"interrupted": False, "diverged": {"epoch": 4, "step": 17}},
            True,
            "diverged",
            "diverged in epoch 4, step 17",
        ),
        ({"diverged": {"epoch": 4}}, True, "diverged", "diverged in epoch 4"),
        ({"diverged": True}, True, "diverged", "diverged"),
        ({}, False, "unfinished", "killed or still running"),
    ],
)
def test_how_a_run_ended(summary, finished, word, detail):
    status = run_status(summary, finished=finished)
    assert (status.word, status.detail) == (word, detail)
    assert status.is_complete is (word == "complete")
