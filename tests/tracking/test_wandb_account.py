import pytest
import wandb
from kdist.errors import UserError
from kdist.tracking.wandb_account import wandb_mode


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


def test_an_unknown_mode_is_refused(asked):
    with pytest.raises(UserError, match="WANDB_MODE has to be one of online.*received onlin"):
        wandb_mode({"WANDB_MODE": "onlin"})
