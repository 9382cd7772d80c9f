"""Trackers by their names, their options, and W&B's account."""

import keras
import pytest
import wandb
from hypothesis import given
from hypothesis import strategies as st
from kdist.callbacks import TrainingTelemetry
from kdist.errors import UserError
from kdist.tracking import tracking
from kdist.tracking.make_trackers import TRACKERS, tracker_names
from kdist.tracking.wandb_tracker import wandb_mode


def test_no_tracker_is_no_callback(tmp_path):
    assert tracking(folder=tmp_path, config={}) == []
    assert tracking("none", folder=tmp_path, config={}) == []


def test_nothing_is_written_before_training_begins(tmp_path):
    trackers = tracking(
        "wandb,tensorboard",
        folder=tmp_path / "run",
        config={},
        every_batches=2,
    )
    assert [type(tracker).__name__ for tracker in trackers] == [
        *("WandbTracker", "TensorBoardTracker", "BatchTracking"),
    ]
    assert not (tmp_path / "run").exists()


def test_a_telemetry_that_is_not_among_the_callbacks_is_an_error(tmp_path):
    """It would measure nothing."""
    telemetry = TrainingTelemetry()
    *_, tracker = tracking("tensorboard", folder=tmp_path, config={}, telemetry=telemetry)
    tracker.set_model(keras.Sequential())
    with pytest.raises(UserError, match=r"not among the callbacks of fit, .*\[telemetry, \*track"):
        tracker.on_train_begin()


def test_keras_waits_for_no_batch_that_nobody_asked_for(tmp_path):
    hooks = keras.callbacks.Callback
    for tracker in tracking("wandb,tensorboard", folder=tmp_path, config={}):
        for name in ("on_batch_end", "on_train_batch_end", "on_train_batch_begin"):
            assert getattr(type(tracker), name) is getattr(hooks, name)


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        ("nosuch", {}, "unknown tracker nosuch"),
        ("wandb", {"every_batches": 0}, "every_batches is 0"),
        (
            "wandb",
            {"folder": "/proc/version/run"},
            "cannot write /proc/version/run.*another folder",
        ),
        ("tensorboard", {"tensorboard_folder": "/proc/version"}, "cannot write /proc/version"),
    ],
)
def test_mistakes_are_told_at_once(tmp_path, names, options, words):
    with pytest.raises(UserError, match=words):
        tracking(names, **{"folder": tmp_path, "config": {}, **options})


def test_a_mode_that_wandb_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "off")
    with pytest.raises(UserError, match="WANDB_MODE has to be one of online.*received off"):
        tracking("wandb", folder=tmp_path, config={})


def test_a_file_in_the_way_of_wandbs_folder(tmp_path):
    (tmp_path / "wandb").write_text("")
    with pytest.raises(UserError, match="cannot write .*/wandb: .*; pass another folder"):
        tracking("wandb", folder=tmp_path, config={})


REAL = st.sets(st.sampled_from([name for name in TRACKERS if name != "none"]))


@given(REAL, st.randoms())
def test_names_in_any_order_and_often_are_each_one_tracker(asked, random):
    parts = [*asked, *asked]
    random.shuffle(parts)
    cut = random.randint(0, len(parts))
    names = tracker_names([" , ".join(parts[:cut]), *parts[cut:]])
    assert set(names) == asked
    assert list(names) == sorted(names, key=TRACKERS.index)


@pytest.mark.parametrize("nothing", [None, "", "none", [], ["none", "none"]])
def test_none_is_no_tracker(nothing):
    assert tracker_names(nothing) == ()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("wandb,nosuch", "unknown tracker nosuch: known are wandb, tensorboard, none"),
        (["none", "wandb"], "'none' together with wandb"),
        ([1], "unknown tracker 1"),
    ],
)
def test_other_names_are_refused(names, words):
    with pytest.raises(UserError, match=words):
        tracker_names(names)


@pytest.fixture
def asked(monkeypatch):
    """What wandb was asked for an account with, and its answer."""
    calls = []
    answer = {"account": True}

    def login(**options):
        calls.append(options)
        if answer["account"] is None:
            raise wandb.errors.AuthenticationError("API key is too short")
        return answer["account"]

    monkeypatch.setattr(wandb, "login", login)
    return calls, answer


@pytest.mark.parametrize(
    ("mode", "account", "expected"),
    [
        (None, True, "online"),
        (None, False, "offline"),
        (None, None, "offline"),
        ("online", True, "online"),
        ("online", False, "offline"),
        ("run", True, "online"),
        ("shared", True, "shared"),
    ],
)
def test_online_takes_an_account_and_nobody_is_asked_for_one(asked, mode, account, expected):
    calls, answer = asked
    answer["account"] = account
    assert wandb_mode({} if mode is None else {"WANDB_MODE": mode}) == expected
    assert calls == [{"prompt": False, "verify": False}]


@pytest.mark.parametrize("mode", ["offline", "dryrun", "disabled"])
def test_a_mode_without_a_server_needs_no_account(asked, mode):
    assert wandb_mode({"WANDB_MODE": mode}) == {"dryrun": "offline"}.get(mode, mode)
    assert asked[0] == []
