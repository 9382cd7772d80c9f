"""Record what independent implementations of LARS and NovoGrad do, for `test_optimizers.py`.

    pip install torch pytorch-optimizer
    python tests/optimizers/record_peers.py

`pytorch-optimizer` (https://github.com/kozistr/pytorch_optimizer) has both; its NovoGrad averages
no gradient at the first step, where NVIDIA's own does, so gradient averaging is left out.
"""

import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytorch_optimizer
import torch

STEPS = 20
CASES = [
    (
        "LARS",
        {"learning_rate": 0.5, "momentum": 0.9, "trust_coefficient": 0.02,
         "weight_decay_rate": 1e-3},
        {"lr": 0.5, "momentum": 0.9, "trust_coefficient": 0.02, "weight_decay": 1e-3},
    ),
    (
        "LARS",
        {"learning_rate": 2.0, "momentum": 0.5},
        {"lr": 2.0, "momentum": 0.5, "weight_decay": 0.0, "trust_coefficient": 1e-3},
    ),
    (
        "NovoGrad",
        {"learning_rate": 0.05, "beta_1": 0.95, "beta_2": 0.98, "weight_decay_rate": 1e-3},
        {"lr": 0.05, "betas": (0.95, 0.98), "weight_decay": 1e-3},
    ),
    (
        "NovoGrad",
        {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.5},
        {"lr": 0.1, "betas": (0.9, 0.5), "weight_decay": 0.0},
    ),
]  # fmt: skip


def trajectory(optimizer, options, weights, gradients):
    """The weights after the steps, in float64."""
    parameter = torch.nn.Parameter(torch.tensor(weights, dtype=torch.float64))
    peer = getattr(pytorch_optimizer, optimizer)([parameter], **options)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        peer.step()
    return parameter.detach().numpy()


def record(number, optimizer, arguments, options):
    """Return a case, as the test reads it."""
    rng = np.random.default_rng(number)
    weights, gradients = rng.normal(size=(4, 3)), rng.normal(size=(STEPS, 4, 3))
    after = trajectory(optimizer, options, weights, gradients)
    version = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("pytorch-optimizer", "torch")
    )
    return {
        "name": f"{optimizer}-{number}",
        "by": version,
        "optimizer": optimizer,
        "arguments": arguments,
        "weights": weights.tolist(),
        "gradients": gradients.tolist(),
        "after": after.tolist(),
    }


if __name__ == "__main__":
    records = [record(number, *case) for number, case in enumerate(CASES)]
    path = Path(__file__).parent / "peer_trajectories.json"
    path.write_text(json.dumps(records) + "\n")
