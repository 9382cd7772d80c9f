"""Augmented images per second of `kdist.data` and of Keras's alternatives, without training.

    python benchmarks/input_pipeline.py         # an epoch of the lab's sample, batch 128: a minute

The candidates are timed in turn in one process, A B C C B A …; ratios are those of a round.
"""

import argparse
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import numpy as np
import tensorflow as tf
from interleaved import timed
from kdist.data import Standardization, training_batches

SHIFT = 0.2  # as in the lab, a fraction of height and width

parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--batch", type=int, default=128)
args = parser.parse_args()

sample = kdist.data.fashion_mnist(sample=True, announce=lambda _: None)
x, y = sample.train_images, sample.train_labels
standardized = (x.astype("float32") - x.mean()) / x.std()
starts = range(0, len(x), args.batch)


class Batches(keras.utils.PyDataset):
    """Keras's own augmentation layers, batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        shift = keras.layers.RandomTranslation(SHIFT, SHIFT, fill_mode="nearest")
        self.augment = keras.Sequential([shift, keras.layers.RandomFlip("horizontal")])

    def __len__(self) -> int:
        return len(starts)

    def __getitem__(self, index: int):
        rows = slice(starts[index], starts[index] + args.batch)
        return self.augment(standardized[rows], training=True), y[rows]


def reading(batches):
    """Return a function that reads an epoch, and times it."""

    def read() -> None:
        seen = sum(np.asarray(images).shape[0] for images, _ in batches())
        if seen != len(x):
            raise RuntimeError(f"received {seen} of {len(x)} images")

    return timed(read)


ours = training_batches(
    x, y, batch_size=args.batch, seed=0, standardization=Standardization.of(x), augment=True
)
# The lab's: image by image, in NumPy and SciPy.
generator = tf.keras.preprocessing.image.ImageDataGenerator(
    width_shift_range=SHIFT, height_shift_range=SHIFT, horizontal_flip=True, fill_mode="nearest"
).flow(standardized, y, batch_size=args.batch)
dataset = Batches()
candidates = {
    "kdist.data": reading(lambda: ours),
    "ImageDataGenerator": reading(lambda: (generator[index] for index in range(len(generator)))),
    "PyDataset with Keras's layers": reading(lambda: (dataset[i] for i in range(len(dataset)))),
}
interleaved.rounds(candidates, 2)  # traces them
times = interleaved.rounds(candidates, args.rounds)
print("| | images/s | kdist.data : it, median (min to max) |\n| --- | --- | --- |")
for name, seconds in times.items():
    ratio = interleaved.ratio(times, "kdist.data", name)
    print(f"| {name} | {len(x) / statistics.median(seconds):,.0f} | {ratio} |")
