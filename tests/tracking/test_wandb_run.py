import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import wandb
from kdist.tracking import wandb_tracker
from kdist.tracking.wandb_tracker import WandbTracker

FAKE = "5f4dcc3b5aa765d61d8327deb882cf99fa1cafe0"

BEGIN = """
import os, pathlib, sys
os.environ["WANDB_MODE"] = "offline"
from kdist.tracking.wandb_tracker import begin_run
run = begin_run(pathlib.Path(sys.argv[1]), config={"width": 1}, group="search", name="trial 1")
print("printed", sys.argv)
run.log({"loss": 0.5})
run.finish()
"""


@pytest.mark.slow
def test_no_key_and_no_command_line_is_in_any_file(tmp_path):
    script = tmp_path / "secretive.py"
    script.write_text(BEGIN)
    environment = os.environ | {"WANDB_API_KEY": FAKE, "MY_TOKEN": f"my-{FAKE}"}
    command = [sys.executable, str(script), str(tmp_path / "run"), f"--api-key={FAKE}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert FAKE in done.stdout
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert [path for path in files if path.suffix == ".wandb"]
    for path in files:
        assert FAKE.encode() not in path.read_bytes(), path
        assert b"secretive" not in path.read_bytes(), path
    names = {path.name for path in files}
    assert not names & {"output.log", "requirements.txt", "wandb-metadata.json", "config.yaml"}


@pytest.fixture
def begun(monkeypatch):
    """What `wandb.init` was called with; it fails as often as there are errors."""
    calls, errors = [], []

    def init(*, project, settings, **given):
        calls.append((project, settings, given))
        if errors:
            raise errors.pop()
        return "the run"

    monkeypatch.setattr(wandb, "init", init)
    return calls, errors


def test_a_server_that_does_not_answer_is_one_warning_and_an_offline_run(
    begun, monkeypatch, tmp_path
):
    calls, errors = begun
    errors.append(wandb.errors.CommError("no such host\nmore"))
    monkeypatch.setattr(wandb_tracker, "wandb_mode", lambda: "online")
    with pytest.warns(UserWarning, match=r"reached \(no such host\): the run is saved offline"):
        assert wandb_tracker.begin_run(tmp_path, config={"a": 1}, group="g") == "the run"
    assert [settings.mode for _, settings, _ in calls] == ["online", "offline"]
    for project, settings, given in calls:
        assert project == "kdist"
        assert (given["config"], given["group"]) == ({"a": 1}, "g")
        assert settings.root_dir == str(tmp_path)
        # A network that is lost costs a minute, not the training.
        assert 0 < settings.init_timeout <= 30
        assert 0 < settings.finish_timeout <= 60


@pytest.mark.parametrize("name", ["WANDB_PROJECT", "WANDB_SWEEP_ID"])
def test_a_project_that_is_chosen_already_stays(begun, monkeypatch, tmp_path, name):
    monkeypatch.setenv(name, "mine")
    wandb_tracker.begin_run(tmp_path, config={})
    assert begun[0][-1][0] is None


def test_a_fit_that_failed_leaves_its_run_to_none_that_follows(tmp_path):
    """Keras does not tell trackers of it."""

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 2)), np.ones((4, 1))

    def fit(name, *more):
        tracker = WandbTracker(tmp_path / name / "wandb", settings={"name": name}, verbose=0)
        model.fit(x, y, verbose=0, callbacks=[tracker, *more])
        return tracker

    with pytest.raises(KeyboardInterrupt):
        fit("first", Fail())
    assert wandb.run.config["name"] == "first"
    second = fit("second")
    assert wandb.run is None
    assert (tmp_path / "second" / "wandb").is_dir()
    assert second.sent["id"]
    with wandb.init(project="own", dir=tmp_path, config={"name": "own"}) as own:  # the user's own
        fit("third")
        assert wandb.run is own
        assert own.config["name"] == "own"
