"""Augmented images per second of kdist's input pipeline and Keras's alternatives."""

from typing import Any

import keras
import numpy as np

from .workload import Workload, optional_library, timed

SHIFT = 0.2  # as in the lab, a fraction of height and width


def _sample(images: int) -> tuple[Any, Any]:
    from ..data import fashion_mnist

    data = fashion_mnist(sample=True)
    return data.train_images[:images], data.train_labels[:images]


def kdist_data(*, batch: int, images: int) -> Workload:
    """Kdist's pipeline: standardization, flips and shifts in one vectorized `tf.data` map."""
    from ..data import Standardization, training_batches

    x, y = _sample(images)
    batches = training_batches(
        x, y, batch_size=batch, seed=0, standardization=Standardization.of(x), augment=True
    )
    return _reading(batches, images)


def image_data_generator(*, batch: int, images: int) -> Workload:
    """The lab's `ImageDataGenerator`: the same image by image, in NumPy and SciPy."""
    with optional_library("SciPy"):
        import scipy  # noqa: F401
    import tensorflow as tf

    x, y = _sample(images)
    x = (x.astype("float32") - x.mean()) / x.std()
    generator = tf.keras.preprocessing.image.ImageDataGenerator(
        width_shift_range=SHIFT,
        height_shift_range=SHIFT,
        horizontal_flip=True,
        fill_mode="nearest",
    )
    flow = generator.flow(x, y, batch_size=batch)
    return _reading([lambda index=index: flow[index] for index in range(len(flow))], images)


def py_dataset(*, batch: int, images: int) -> Workload:
    """A `keras.utils.PyDataset` with Keras's own augmentation layers, batch by batch."""
    x, y = _sample(images)
    x = (x.astype("float32") - x.mean()) / x.std()
    augment = keras.Sequential(
        [
            keras.layers.RandomTranslation(SHIFT, SHIFT, fill_mode="nearest"),
            keras.layers.RandomFlip("horizontal"),
        ]
    )

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return -(-len(x) // batch)

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * batch, (index + 1) * batch)
            return augment(x[rows], training=True), y[rows]

    batches = Batches()
    return _reading([lambda index=index: batches[index] for index in range(len(batches))], images)


def _reading(batches: Any, images: int) -> Workload:
    def read() -> None:
        seen = 0
        for batch in batches:
            seen += np.asarray((batch() if callable(batch) else batch)[0]).shape[0]
        if seen != images:
            raise RuntimeError(f"received {seen} of {images} images")

    return Workload(work=timed(read), facts={"images": images})
