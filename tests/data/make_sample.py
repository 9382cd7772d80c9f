"""How kdist/data/fashion_mnist_sample.npz was made: make_sample.py FOLDER_OF_THE_FULL_SET."""

import sys
from pathlib import Path

import kdist.data
import numpy as np

TARGET = Path(kdist.data.__file__).with_name("fashion_mnist_sample.npz")

if __name__ == "__main__":
    full = kdist.data.fashion_mnist(data_dir=sys.argv[1])
    np.savez_compressed(
        TARGET,
        train_images=full.train_images[:10_000, :, :, 0],
        train_labels=full.train_labels[:10_000].astype(np.uint8),
        test_images=full.test_images[:2_000, :, :, 0],
        test_labels=full.test_labels[:2_000].astype(np.uint8),
    )
