"""`kdist train`, killed by SIGKILL amid an epoch and resumed, against one that was not.

On a small network: the WideResNet takes ten times as long to trace, three times.
"""

import csv
import os
import shutil
import signal
import subprocess
import sys

import keras
import pytest
from kdist.checkpoint import checkpoint_files
from replicas import assert_equal
from small_network import STAND_IN

pytestmark = pytest.mark.slow

SETTINGS = "--dataset sample --subset 600 --batch-size 8 --replicas 2"
SETTINGS += " --epochs 2 --momentum 0.9 --ema-momentum 0.9 --checkpoint-every 1e-9 --keep 2"
TIMES = ("seconds", "images_per_sec")

KILLED = """
import os, signal, sys
from kdist.checkpoint.checkpoint_folder import CheckpointStore
commit = CheckpointStore.commit
def committed(store, *, epoch, batch, **values):
    generation = commit(store, epoch=epoch, batch=batch, **values)
    if (epoch, batch) >= (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    return generation
CheckpointStore.commit = committed
"""
COMMANDS = """
import sys
from kdist.cli import main
for arguments in {commands!r}:
    sys.argv = ["kdist", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            print("exit code", end.code, file=sys.stderr)
"""


def rows_of(folder):
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def python(code):
    return subprocess.run([sys.executable, "-c", STAND_IN + code], capture_output=True, text=True)


def test_kill_9_and_resume_is_the_run_that_was_not_killed(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    commands = [["train", *SETTINGS.split(), "--run-dir", str(killed)]]
    done = python(KILLED + COMMANDS.format(commands=commands))
    assert done.returncode == -signal.SIGKILL, done.stderr
    newest = checkpoint_files(killed / "checkpoints")[0]
    assert (newest.epoch, newest.batch >= 3) == (1, True)
    with (killed / "history.csv").open("a") as file:
        file.write("2,9.")
    commands = [["train", *SETTINGS.split(), "--run-dir", str(whole)]]
    commands += [["train", "--resume", str(killed)]]
    done = python(COMMANDS.format(commands=commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Resumed in epoch 2 after step {newest.batch} from {newest.path}" in done.stdout
    assert_same_runs(killed, whole)


def assert_same_runs(killed, whole):
    assert rows_of(killed) == rows_of(whole)
    found, expected = (
        keras.models.load_model(folder / "model.keras") for folder in (killed, whole)
    )
    assert_equal(found.get_weights(), expected.get_weights())
    assert_equal(found.optimizer.variables, expected.optimizer.variables)


@pytest.fixture
def storage(monkeypatch):
    """A server of S3 with a bucket, and the variables by which `s3://` leads there."""
    reason = "needs s3fs and moto, of kdist[dev]"
    s3fs = pytest.importorskip("s3fs", reason=reason)
    moto = pytest.importorskip("moto.server", reason=reason)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    storage = s3fs.S3FileSystem(skip_instance_cache=True)
    storage.mkdir("bucket")
    yield storage
    server.stop()


def test_a_run_in_s3_continues_on_another_machine(tmp_path, storage, monkeypatch):
    """The disk of the first is lost, and the checkpoint that was not uploaded yet."""
    killed, whole, disk = "s3://bucket/runs/killed", tmp_path / "whole", tmp_path / "disk"
    disk.mkdir()
    with monkeypatch.context() as machine:
        machine.setenv("TMPDIR", str(disk))
        commands = [["train", "--run-dir", "s3://nowhere/run"]]
        commands += [["train", *SETTINGS.split(), "--run-dir", killed]]
        done = python(KILLED + COMMANDS.format(commands=commands))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "cannot read s3://nowhere/run: The specified bucket does not exist" in done.stderr
    lost = max(path.name for path in disk.glob("kdist-copy-*/killed/checkpoints/e*"))
    shutil.rmtree(disk)
    names = sorted(
        os.path.basename(path) for path in storage.find("bucket/runs/killed/checkpoints")
    )
    assert lost not in names
    page = tmp_path / "report.html"
    commands = [
        ["train", *SETTINGS.split(), "--run-dir", str(whole)],
        ["train", "--resume", killed],
    ]
    commands += [["evaluate", killed], ["report", killed, "--output", str(page)]]
    done = python(COMMANDS.format(commands=commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"from {killed}/checkpoints/{names[-1]}" in done.stdout
    storage.get("bucket/runs/killed", str(tmp_path / "copy"), recursive=True)
    assert_same_runs(tmp_path / "copy", whole)
    assert ">killed<" in page.read_text()
