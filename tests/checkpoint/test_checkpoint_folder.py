"""Checkpoints in a folder: written whole or not at all, found again, kept and removed."""

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from kdist.checkpoint import DamagedCheckpointError, checkpoint_file, checkpoint_files
from kdist.checkpoint.checkpoint_folder import CheckpointStore
from kdist.checkpoint.folder_lock import is_abandoned
from kdist.errors import RefusedCheckpointsError, UserError
from safetensors.numpy import load_file

ARRAYS = {
    "weight": np.arange(300, dtype="float32").reshape(3, 100),
    "step": np.array(7),
    "none": np.zeros((0, 4)),
    "mask": np.array([True, False]),
}
WRITER = Path(__file__).with_name("write_checkpoints.py")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def places(folder):
    return [(one.epoch, one.batch) for one in checkpoint_files(folder)]


def commit(store, epoch, batch=0, **state):
    return store.commit(epoch=epoch, batch=batch, arrays=ARRAYS, state={"epoch": epoch, **state})


@pytest.fixture
def lines():
    return []


@pytest.fixture
def store(tmp_path, lines):
    with closing(CheckpointStore(tmp_path / "checkpoints", announce=lines.append)) as made:
        yield made


def test_what_was_written_reads_back(store):
    state = {"loss": [0.1, float("inf")], "name": "é", "nothing": None}
    written = store.commit(epoch=2, batch=30, arrays=ARRAYS, state=state)
    found, arrays, read = store.read_newest()
    assert found == written
    assert read == state
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in ARRAYS.items()
    }


def test_a_file_is_named_by_what_it_holds_and_safetensors_reads_it(store):
    path = commit(store, 12, 345).path
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    assert path.name == f"e000012-b000000345-{digest}.safetensors"
    assert load_file(path)["weight"].tobytes() == ARRAYS["weight"].tobytes()


def test_types_that_numpy_lacks_read_back(store):
    import ml_dtypes

    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    store.commit(
        epoch=0, batch=1, arrays={"a": values, "b": values[0], "c": np.array(1j)}, state={}
    )
    _, arrays, _ = store.read_newest()
    assert arrays["a"].dtype == values.dtype
    assert arrays["a"].tobytes() == values.tobytes()
    assert (arrays["b"].shape, arrays["b"].item(), arrays["c"].item()) == ((), 1.5, 1j)


def test_the_newest_is_kept_by_number_not_by_text(store):
    for place in [(0, 9), (0, 10), (1, 0), (10**6, 0), (10**6 + 1, 10**9)]:
        commit(store, *place)
    assert places(store.folder) == [(10**6 + 1, 10**9), (10**6, 0), (1, 0)]


def test_older_ones_are_removed_after_the_commit(store, monkeypatch):
    seen = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda part, to: (seen.append(names(store.folder)), replace(part, to))[1]
    )
    for epoch in range(5):
        commit(store, epoch)
    assert [len(there) for there in seen] == [1, 2, 3, 4, 4]  # with the part
    assert places(store.folder) == [(4, 0), (3, 0), (2, 0)]


def test_keep_one(tmp_path):
    with closing(CheckpointStore(tmp_path, keep=1)) as store:
        for epoch in range(3):
            commit(store, epoch)
        assert places(tmp_path) == [(2, 0)]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove"])
def test_a_damaged_one_is_named_and_the_one_before_is_taken(store, lines, damage):
    commit(store, 1)
    path = commit(store, 2).path
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        kept = {"flip": content[:-1] + bytes([content[-1] ^ 1]), "truncate": content[:-1]}
        path.write_bytes(kept.get(damage, b""))
    assert store.read_newest()[0].epoch == 1
    assert lines == (
        []
        if damage == "remove"
        else [
            f"Skipped the damaged checkpoint {path.name}: its content has changed since it was"
            " written (the digests differ)"
        ]
    )


def test_a_flip_in_any_region_is_found(store):
    """Of the header's size, the header, every array, the padding; in any bit."""
    one = commit(store, 1)
    content = one.path.read_bytes()
    for place in [*range(8), *range(8, len(content), 37), len(content) - 1]:
        one.path.write_bytes(
            content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        )
        with pytest.raises(DamagedCheckpointError):
            one.verify()
    one.path.write_bytes(content)
    one.verify()


def test_a_damaged_one_takes_no_place_of_those_kept(store):
    commit(store, 1)
    newest = commit(store, 5)
    newest.path.write_bytes(b"")
    store.read_newest()
    for batch in (10, 20):
        commit(store, 1, batch)
    assert places(store.folder) == [(1, 20), (1, 10), (1, 0)]


def test_all_damaged(store):
    for epoch in (1, 2):
        commit(store, epoch).path.write_bytes(b"")
    with pytest.raises(
        RefusedCheckpointsError, match="every checkpoint in .* is damaged: restore a copy"
    ):
        store.read_newest()


def test_other_files_are_left_alone(store):
    others = ["e1-b2.safetensors", "e000001-b000000002-xyz.safetensors", "notes.txt"]
    for name in others:
        (store.folder / name).write_text("mine")
    assert store.read_newest() is None
    for epoch in range(5):
        commit(store, epoch)
    assert set(others) < set(names(store.folder))


def test_a_newer_format_is_refused_and_kept(store, monkeypatch):
    """Not passed over as damaged, which would have an older one continued and it removed."""
    commit(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_file, "FORMAT", 2)
        commit(store, 2)
    before = names(store.folder)
    with pytest.raises(UserError, match=r"e000002.* has format 2 of a newer kdist; this version"):
        store.read_newest()
    assert names(store.folder) == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_checkpoint_that_cannot_be_written_changes_no_other(store, monkeypatch, code):
    commit(store, 1)
    commit(store, 2)
    before = names(store.folder)

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=os.strerror(code)):
        commit(store, 3)
    assert names(store.folder) == before


def test_a_folder_in_use_says_by_which_process(tmp_path, store):
    with pytest.raises(UserError, match=rf"is in use by process {os.getpid()} on .* since"):
        CheckpointStore(store.folder)
    code = (
        "from pathlib import Path; from kdist.checkpoint.checkpoint_folder import CheckpointStore;"
        f"CheckpointStore(Path({str(store.folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"is in use by process {os.getpid()} on" in done.stderr
    store.close()
    CheckpointStore(store.folder).close()


def test_a_folder_is_abandoned_once_its_process_on_this_machine_has_ended(tmp_path, store):
    assert not is_abandoned(tmp_path / "missing")
    assert not is_abandoned(store.folder)
    store.close()
    assert is_abandoned(store.folder)
    lock = store.folder / ".lock"
    text = lock.read_text()
    for other in (text.replace(socket.gethostname(), "another-machine"), text[:-1], "[]", ""):
        lock.write_text(other)
        assert not is_abandoned(store.folder)


def test_a_forked_child_does_not_hold_the_folder(store):
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        with pytest.raises(UserError, match="in use"):
            CheckpointStore(store.folder)  # the child has not freed it either
        store.close()
        CheckpointStore(store.folder).close()
    finally:
        os.write(done[1], b"1")
        os.waitpid(child, 0)


def test_a_file_system_without_locks_takes_checkpoints(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with closing(CheckpointStore(tmp_path)) as store:
        commit(store, 1)
    assert places(tmp_path) == [(1, 0)]


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*: Not a directory"):
        CheckpointStore(tmp_path / "file" / "folder")


@pytest.mark.parametrize("point", ["in the file", "before the rename", "after the rename"])
def test_a_process_that_is_killed_leaves_the_newest_whole(tmp_path, point):
    """Each point of a commit, at the third checkpoint."""
    done = subprocess.run([sys.executable, WRITER, tmp_path, point], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = 3 if point == "after the rename" else 2
    with closing(CheckpointStore(tmp_path)) as store:
        found, arrays, state = store.read_newest()
        assert (found.epoch, state) == (expected, {"epoch": expected})
        assert (arrays["weight"] == expected).all()
        assert not [name for name in names(tmp_path) if name.startswith(".part")]


def test_kills_at_any_instant(tmp_path):
    """In commits back to back, each process continues from the newest."""
    last = 0
    rng = np.random.default_rng(0)
    for _ in range(8):
        command = [sys.executable, WRITER, tmp_path, "never"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            committed = [int(process.stdout.readline()) for _ in range(rng.integers(2, 30))]
            process.kill()
            committed += [int(line) for line in process.stdout.read().splitlines()]
        with closing(CheckpointStore(tmp_path)) as store:
            found, arrays, _ = store.read_newest()
            assert found.epoch in (committed[-1], committed[-1] + 1)
            assert (arrays["weight"] == found.epoch).all()
            assert committed[0] == last + 1
            last = found.epoch
    assert len(checkpoint_files(tmp_path)) <= 4


def test_the_store_needs_no_tensorflow():
    code = (
        "import sys, kdist.checkpoint.checkpoint_folder\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_state_is_json_in_the_files_metadata(store):
    from safetensors import safe_open

    with safe_open(commit(store, 3, seed=1).path, framework="numpy") as file:
        assert json.loads(file.metadata()["state"]) == {"epoch": 3, "seed": 1}
