"""`kdist checkpoints`, without TensorFlow."""

import numpy as np
import pytest
from kdist.checkpoint.listing import list_checkpoints
from kdist.checkpoint.store import CheckpointFile, CheckpointStore, checkpoint_files
from kdist.errors import UserError

WEIGHT = np.zeros(500_000, "float32")


@pytest.fixture
def run(tmp_path):
    with CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        for epoch, batch in ((0, 7), (1, 0), (2, 17)):
            store.commit(epoch=epoch, batch=batch, arrays={"weight": WEIGHT}, state={})
    return tmp_path / "run"


def listed(path, **options):
    lines = []
    is_whole = list_checkpoints(str(path), announce=lines.append, **options)
    return is_whole, [line.split() for line in lines]


@pytest.mark.parametrize("inner", ["", "checkpoints"])
def test_the_newest_first(run, inner):
    newest = checkpoint_files(run / "checkpoints")[0]
    later = newest.saved_at + 150
    is_whole, [heading, *rows] = listed(run / inner, clock=lambda: later, verify=True)
    assert is_whole
    assert heading == ["epoch", "step", "size", "age", "state", "file"]
    assert [row[:2] for row in rows] == [["3", "17"], ["1", "end"], ["1", "7"]]
    assert rows[0][2:] == ["2.0", "MB", "2", "min", "whole", newest.path.name]


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "0 s"), (119, "119 s"), (7100, "118 min"), (9e4, "25 h"), (1e6, "12 days")],
)
def test_ages(run, seconds, age):
    times = iter([checkpoint_files(run / "checkpoints")[0].saved_at + seconds] * 3)
    _, [_, row, *_] = listed(run, clock=lambda: next(times))
    assert " ".join(row[4:6]) == age


def test_a_damaged_one(run):
    newest, middle, _ = checkpoint_files(run / "checkpoints")
    content = bytearray(newest.path.read_bytes())
    content[-1] ^= 1
    newest.path.write_bytes(content)
    middle.path.write_bytes(middle.path.read_bytes()[:-1])
    is_whole, [_, *rows] = listed(run)
    assert not is_whole
    assert [row[6].rstrip(":") for row in rows] == ["whole", "damaged", "whole"]
    is_whole, [_, *rows] = listed(run, verify=True)
    assert not is_whole
    assert [row[6].rstrip(":") for row in rows] == ["damaged", "damaged", "whole"]
    assert "its content is not what was written" in " ".join(rows[0])


def test_mistakes(run, tmp_path):
    no_folders = [(tmp_path / name, "is not a folder") for name in ("no", "x" * 300)]
    for path, words in ((tmp_path, "has no checkpoints"), *no_folders):
        with pytest.raises(UserError, match=words):
            listed(path)
    with pytest.raises(UserError, match="a file whose name ends in .keras"):
        listed(run, export=str(tmp_path / "model.h5"))
    for one in checkpoint_files(run / "checkpoints"):
        one.path.write_bytes(b"")
    with pytest.raises(UserError, match="none of these checkpoints is whole"):
        listed(run, export=str(tmp_path / "model.keras"))


def test_a_checkpoint_that_a_training_removes_meanwhile(run, monkeypatch):
    verify = CheckpointFile.verify

    def removing(checkpoint):
        verify(checkpoint)
        if checkpoint.batch == 7:
            checkpoint.path.unlink()

    monkeypatch.setattr(CheckpointFile, "verify", removing)
    is_whole, [_, *rows] = listed(run, verify=True)
    assert is_whole
    assert [row[:2] for row in rows] == [["3", "17"], ["1", "end"]]
