"""The WideResNet in PyTorch, with the same layers, batches and optimizer."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

CLASSES, STEM_FILTERS = 10, 16


class _Block(nn.Module):
    def __init__(self, before: int, filters: int) -> None:
        super().__init__()
        self.skip = nn.Conv2d(before, filters, 1) if before != filters else nn.Identity()
        self.branch = nn.Sequential(
            nn.Conv2d(before, filters, 3, padding=1),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            nn.Dropout(0.01),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
        )

    def forward(self, x: Any) -> Any:
        return self.skip(x) + self.branch(x)


def wide_resnet(depth: int, width: int) -> nn.Module:
    """Make a network like `kdist.models.WideResNet`, from images to logits."""
    layers: list[nn.Module] = [
        nn.Conv2d(1, STEM_FILTERS, 3, padding=1),
        nn.BatchNorm2d(STEM_FILTERS),
        nn.ReLU(),
    ]
    filters = STEM_FILTERS
    for stage in range(3):
        for _ in range((depth - 4) // 6):
            before, filters = filters, STEM_FILTERS * 2**stage * width
            layers.append(_Block(before, filters))
        layers.append(nn.MaxPool2d(2) if stage < 2 else nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(filters, CLASSES))


def training(
    depth: int, width: int, *, batch: int, steps: int, compiled: bool
) -> Callable[[], float]:
    """Return a function that trains for an epoch and returns its seconds.

    It computes mean loss and accuracy, as Keras's `fit` does.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = wide_resnet(depth, width).to(device=device, memory_format=torch.channels_last)
    model.train()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(batch * steps, 28, 28, 1)).astype("float32")
    labels = rng.integers(0, CLASSES, len(images))
    x = torch.from_numpy(images).permute(0, 3, 1, 2).to(device, memory_format=torch.channels_last)
    y = torch.from_numpy(labels).to(device)
    parts = [slice(start, start + batch) for start in range(0, len(images), batch)]

    def epoch() -> float:
        start = time.perf_counter()
        loss_sum, correct = torch.zeros((), device=device), torch.zeros((), device=device)
        for part in parts:
            optimizer.zero_grad(set_to_none=True)
            logits = forward(x[part])
            loss = nn.functional.cross_entropy(logits, y[part])
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                loss_sum += loss * len(logits)
                correct += (logits.argmax(1) == y[part]).sum()
        _ = loss_sum.item() / len(images), correct.item() / len(images)  # waits for a GPU
        return time.perf_counter() - start

    return epoch
