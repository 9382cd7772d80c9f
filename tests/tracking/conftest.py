"""No test here reaches W&B's server, asks for a key, or leaves wandb's service running."""

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def wandb_at_home(tmp_path_factory):
    """wandb with folders of its own and no account."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "CACHE", "DATA", "ARTIFACT"):
            patch.setenv(f"WANDB_{name}_DIR", str(tmp_path_factory.mktemp(name.lower())))
        patch.setenv("NETRC", str(tmp_path_factory.mktemp("netrc") / "none"))
        patch.setenv("WANDB_MODE", "offline")
        for name in ("WANDB_API_KEY", "WANDB_SWEEP_ID", "WANDB_PROJECT"):
            patch.delenv(name, raising=False)
        yield
        if "wandb" in sys.modules:
            sys.modules["wandb"].teardown()
