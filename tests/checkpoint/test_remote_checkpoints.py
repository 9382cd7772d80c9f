"""Checkpoints in a remote folder, killed at every write, and the folder's errors."""

import contextlib
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fsspec
import kdist
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from kdist.callbacks import Checkpoint
from kdist.checkpoint.checkpoint_file import FILE_NAME, CheckpointFile
from kdist.checkpoint.worker_checkpoints import SharedStore
from kdist.errors import RefusedCheckpointsError, UserError
from kdist.remote import RemoteFolder, folder_address, local_records
from kdist.training import TrainConfig
from mortal_storage import KilledError, MortalObjectStore, MortalStorage
from resumed_training import STEPS, VALIDATION, Training, compiled

FOLDER = "mortal://bucket/run"
ONE_WORKER = SimpleNamespace(
    count=1,
    is_chief=True,
    run_on_chief=lambda event, action: action(),
    slow=lambda work: contextlib.nullcontext(),
)
ANY = re.compile(r"[^.].*")
_open = []


@pytest.fixture(autouse=True)
def empty_storages():
    yield
    for store in _open:
        store.close()
    _open.clear()
    for storage in (MemoryFileSystem, MortalStorage):
        storage.store.clear()
        storage.pseudo_dirs[:] = [""]


def opened(folder=FOLDER, **options):
    options = Checkpoint(folder, **options).options
    _open.append(SharedStore(options, ONE_WORKER, announce=[].append))
    return _open[-1]


def save(store, epoch):
    arrays = {"weight": np.full(1000, epoch, "float32")}
    store.commit(epoch=epoch, batch=0, arrays=arrays, state={"epoch": epoch})


def newest(store):
    """The epoch that a new process would continue."""
    found = store.find("auto")
    if found is None:
        return 0
    checkpoint, arrays, state = found
    assert (arrays["weight"] == checkpoint.epoch).all()
    return state["epoch"]


def remote_epochs(tmp_path, folder=FOLDER):
    """The epochs of the checkpoints in the storage, each of which is whole."""
    storage, root = fsspec.core.url_to_fs(folder)
    epochs = []
    for path in storage.find(root):
        name = path.rpartition("/")[2]
        if FILE_NAME.fullmatch(name):
            storage.get_file(path, str(tmp_path / name))
            checkpoint = CheckpointFile.of_file(tmp_path / name)
            checkpoint.verify()
            epochs.append(checkpoint.epoch)
    return epochs


@pytest.mark.parametrize("kind", [MortalStorage, MortalObjectStore])
def test_a_kill_before_amid_or_after_any_write_leaves_what_was_saved(kind, tmp_path):
    """A new process on another machine continues, and removes what is old."""
    fsspec.register_implementation("mortal", kind, clobber=True)
    for moment in itertools.count():
        kind.store.clear()
        kind.begin(killed_at=moment)
        saved = 0
        try:
            store = opened(keep=2)
            for epoch in range(1, 5):
                save(store, epoch)
                saved = epoch
        except KilledError:
            pass
        else:
            break
        kind.begin()
        assert {saved} - {0} <= set(remote_epochs(tmp_path)) <= {*range(saved - 2, saved + 2)}
        store = opened(keep=2)
        found = newest(store)
        assert found in (saved, saved + 1)
        for epoch in (found + 1, found + 2):
            save(store, epoch)
        assert remote_epochs(tmp_path) == [found + 1, found + 2]
    assert moment >= 3 * 8  # each of two files to try, four checkpoints, and two removals


def test_a_folder_with_other_files_keeps_them():
    storage = fsspec.filesystem("memory")
    storage.pipe_file("/bucket/run/notes.txt", b"mine")
    store = opened("memory://bucket/run", keep=1)
    for epoch in (1, 2):
        save(store, epoch)
    assert len(storage.find("/bucket/run")) == 2
    assert storage.cat("/bucket/run/notes.txt") == b"mine"


def test_damaged_checkpoints_are_skipped_then_refused(tmp_path):
    folder = "memory://bucket/run"
    store, storage = opened(folder), fsspec.filesystem("memory")
    for epoch in (1, 2):
        save(store, epoch)
    old, new = storage.find("/bucket/run")
    storage.pipe_file(new, storage.cat(new)[:-1])
    store = opened(folder)
    assert newest(store) == 1
    save(store, 3)
    assert remote_epochs(tmp_path, folder) == [1, 3]
    for path in storage.find("/bucket/run"):
        storage.pipe_file(path, b"")
    with pytest.raises(RefusedCheckpointsError, match=f"every checkpoint in {folder} is damaged"):
        opened(folder).find("auto")
    with pytest.raises(UserError, match=f'"never", but {folder} has checkpoints'):
        opened(folder).find("never")
    with pytest.raises(UserError, match='"must", but memory://empty has no checkpoint'):
        opened("memory://empty").find("must")


def test_a_failed_upload_is_tried_again(monkeypatch, tmp_path):
    folder = "memory://bucket/run"
    store = opened(folder, keep=2)
    save(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put_file", lambda *_, **__: 1 / 0)
        for epoch in (2, 3):
            with pytest.raises(OSError, match=f"{folder}: division by zero"):
                save(store, epoch)
    assert remote_epochs(tmp_path, folder) == [1]
    save(store, 4)
    assert remote_epochs(tmp_path, folder) == [3, 4]


def test_new_and_changed_files_are_downloaded_and_removed_ones_removed(tmp_path):
    storage = fsspec.filesystem("memory")
    remote = RemoteFolder("memory://bucket/run/", ANY)
    assert remote.list_names() == []
    for name, content in (("a", b"1"), ("inner/b", b"2")):
        storage.pipe_file(f"/bucket/run/{name}", content)
    remote.download()
    assert (remote.local / "inner" / "b").read_bytes() == b"2"
    (remote.local / "a").write_bytes(b"unchanged")
    storage.pipe_file("/bucket/run/inner/b", b"33")
    remote.download()
    assert [(remote.local / name).read_bytes() for name in ("a", "inner/b")] == [
        b"unchanged",
        b"33",
    ]
    storage.rm_file("/bucket/run/a")
    remote.download()
    assert not (remote.local / "a").exists()
    assert remote.insert_address(f"in {remote.local}/a") == "in memory://bucket/run/a"
    local = remote.local
    del remote
    assert not local.exists()


def test_a_run_in_the_storage_can_be_resumed_after_each_write(monkeypatch):
    writes = []
    monkeypatch.setattr(MemoryFileSystem, "mv", lambda _, part, name: writes.append(name))
    monkeypatch.setattr(MemoryFileSystem, "rm_file", lambda _, name: writes.append(f"no {name}"))
    remote = RemoteFolder("memory://run", ANY)
    names = ["checkpoints/e1", "history", "summary.json", "zz"]
    for name in names:
        (remote.local / name).parent.mkdir(exist_ok=True)
        (remote.local / name).touch()
    remote.upload()
    assert writes == ["/run/history", "/run/zz", "/run/checkpoints/e1", "/run/summary.json"]
    writes.clear()
    for name in names:
        (remote.local / name).unlink()
    (remote.local / "checkpoints/e2").touch()
    remote.upload()
    assert writes[:2] == ["no /run/summary.json", "/run/checkpoints/e2"]
    assert len(writes) == 5


COPY = """
import os
from kdist.checkpoint.checkpoint_file import FILE_NAME
from kdist.remote import RemoteFolder
remotes = [RemoteFolder(f"memory://{name}", FILE_NAME) for name in ("killed", "kept")]
print(remotes[0].local, remotes[1].keep_copy(), flush=True)
os._exit(1)
"""


def test_the_copy_of_a_killed_process_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = RemoteFolder("memory://mine", ANY)
    done = subprocess.run(
        [sys.executable, "-c", COPY],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    killed, kept = map(Path, done.stdout.split())
    assert killed.parent.parent == tmp_path
    assert killed.exists()
    RemoteFolder("memory://next", ANY)
    assert (killed.exists(), kept.exists(), mine.local.exists()) == (False, True, True)


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    with pytest.raises(
        UserError, match="cannot write to memory://bucket/run: Access Denied; check"
    ):
        opened("memory://bucket/run")
    monkeypatch.setattr(MemoryFileSystem, "find", refuse)
    with pytest.raises(UserError, match="cannot read memory://bucket: Access Denied; check"):
        RemoteFolder("memory://bucket", ANY).download()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ram://a", "folder is ram://a, which cannot be opened .*not known.*s3fs"),
        (Path("memory://a"), "pass an address as text, because Path turns s3:// into s3:/"),
        ("memory://", "pass an address as text"),
        ("", "folder is an empty path"),
    ],
)
def test_addresses_that_cannot_be_opened(address, words):
    with pytest.raises(UserError, match=words):
        Checkpoint(address)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for make in (lambda: Checkpoint("gs://b/run"), lambda: TrainConfig(run_dir="gs://b/run")):
        with pytest.raises(UserError, match=r"module fsspec of .*pip install 'kdist\[remote\]'"):
            make()
    assert Checkpoint("runs/1").options.folder == "runs/1"


def test_local_folders_are_read_where_they_are(tmp_path):
    with local_records(str(tmp_path)) as folder:
        assert folder == tmp_path
    assert folder_address("folder", tmp_path) == str(tmp_path)
    assert kdist.checkpoint.checkpoint_files(tmp_path) == []


@pytest.mark.usefixtures("without_graph_optimizer")
def test_a_script_continues_from_the_storage_alone(tmp_path, capsys):
    training = Training(compiled(2))
    expected = training.uninterrupted()
    folder = "memory://bucket/run"
    assert training.killed(folder, 2, STEPS - 1, VALIDATION).differences(expected) == []
    assert remote_epochs(tmp_path, folder)[-1] == 3
    training.fit(Checkpoint("memory://bucket/again"), epochs=1)
    assert "Checkpoints: memory://bucket/again" in capsys.readouterr().out
