"""`Cifar10Net` in PyTorch, for `cifar10_net.py`."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WEIGHT_DECAY = 0.002  # of the two dense layers


class SamePooling(nn.Module):
    """3x3 max pooling of stride 2, padded as TensorFlow's "same": only below and on the right."""

    def forward(self, x: Any) -> Any:
        """Pool images with sides of even length."""
        return functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)


def network() -> nn.Sequential:
    """Make the network, from images of 24x24 to logits."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.ReLU(),
        SamePooling(),
        nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0),
        SamePooling(),
        nn.Flatten(),
        nn.Linear(64 * 6 * 6, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, 10),
    )


def _load(model: nn.Module, weights: Sequence[Any]) -> None:
    """Give it the weights of the Keras model."""
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            array = np.asarray(weight)
            if array.ndim == 4:
                array = array.transpose(3, 2, 0, 1)
            elif array.shape[0] == 64 * 6 * 6:  # of images with the channels last
                array = array.reshape(6, 6, 64, -1).transpose(3, 2, 0, 1).reshape(array.shape[::-1])
            elif array.ndim == 2:
                array = array.T
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))


def steps(
    weights: Sequence[Any], images: np.ndarray, labels: np.ndarray, count: int
) -> Callable[[], float]:
    """Return a function that times `count` training steps on one batch."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = network().to(memory_format=torch.channels_last)
    _load(model, weights)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dense = [layer.weight for layer in model if isinstance(layer, nn.Linear)][:2]
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(labels)

    def loss() -> torch.Tensor:
        penalty = sum(weight.square().sum() for weight in dense)
        return functional.cross_entropy(model(x), y) + WEIGHT_DECAY * penalty

    print(f"PyTorch: loss {loss().item():.6f}")

    def timed_steps() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            value = loss()
            value.backward()
            optimizer.step()
            value.item()  # as Keras's logs of a step
        return time.perf_counter() - begin

    return timed_steps
