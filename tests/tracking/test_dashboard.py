import json

import kdist.tracking.dashboard
import pytest
from kdist.errors import UserError
from kdist.tracking.dashboard import dashboard, make_workspace

# wandb-workspaces has validators in the style of pydantic 1.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecatedSince20",
    "ignore::pydantic.warnings.PydanticDeprecatedSince211",
)


LINES = """accuracy val_accuracy loss val_loss learning_rate images_per_sec
    batch_norm_gap
    batch_norm_replica_gap loss_in_training_mode loss_in_inference_mode"""
SETTINGS = "replicas global_batch base_lr batch_size optimizer dropout wd"


def test_what_would_be_sent_shows_every_value():
    sent = make_workspace(entity="us", project="ours")._to_model().model_dump_json()
    assert json.loads(sent)["entity"] == "us"
    for name in LINES.split():
        assert f'"epoch/{name}"' in sent
    for name in (*SETTINGS.split(), "best_val_accuracy"):
        assert name in sent


def test_it_says_what_it_needs_without_an_account(monkeypatch):
    with pytest.raises(UserError, match="WANDB_MODE is offline: unset WANDB_MODE"):
        dashboard(project="kdist")
    monkeypatch.delenv("WANDB_MODE")
    with pytest.raises(UserError, match="run `wandb login`, or set WANDB_API_KEY"):
        dashboard(project="kdist")


def test_it_says_so_when_the_server_does_not_answer(monkeypatch):
    class Unsaved:
        def save(self):
            raise ConnectionError("no such host\nand more")

    monkeypatch.setattr("kdist.tracking.wandb_tracker.wandb_mode", lambda: "online")
    monkeypatch.setattr(kdist.tracking.dashboard, "make_workspace", lambda **_: Unsaved())
    with pytest.raises(UserError, match="no such host; check that the network.*us/kdist") as error:
        dashboard(project="kdist", entity="us")
    assert "\n" not in str(error.value)
