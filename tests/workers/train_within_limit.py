"""Trains a model whose weights are larger than the memory that this process may use.

The arguments are `shard_weights` or `ordinary`, the number of layers, and the limit in MB, beyond
the memory of a process that has trained a small model with as many layers.
"""

import re
import resource
import sys
from pathlib import Path

import kdist
import keras
import numpy as np

WIDTH = 2560  # a layer has 26 MB

way, layers, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) * 10**6
strategy = kdist.MultiWorkerMirroredStrategy(shard_weights=way == "shard_weights")


def train(width):
    def make():
        dense = [keras.layers.Dense(width, use_bias=False) for _ in range(layers)]
        return keras.Sequential([keras.Input((width,)), *dense])

    rows = np.ones((8, width), "float32")
    model = strategy.build(make)
    model.compile("sgd", "mse")
    model.fit(rows, rows, batch_size=8, verbose=0)
    return 4 * model.count_params()


train(8)
used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
limit += 1024 * int(used[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(f"trained weights of {train(WIDTH) // 10**6} MB")
