"""A labelled set of images, as plain arrays."""

import dataclasses

import numpy as np
import numpy.typing as npt

from ..arguments import as_integer
from ..errors import UserError

IMAGE_AXES = ("images", "height", "width", "channels")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images with their labels.

    Args:
        name: The name of the data set, such as `"Fashion-MNIST"`.
        source: Where it was read from.
        train_images: uint8, (images, height, width, channels).
        train_labels: Integers from 0 to classes - 1, (images,).
        test_images: Like `train_images`, with the same height, width and channels.
        test_labels: Like `train_labels`.
        class_names: The name of each label.

    Raises:
        UserError: If types, shapes, counts or labels do not match.

    Example:
        >>> data = kdist.data.fashion_mnist(sample=True)
        >>> data.image_shape, data.classes
        ((28, 28, 1), 10)
    """

    name: str
    source: str
    train_images: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.integer]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.integer]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check("training", self.train_images, self.train_labels)
        self._check("test", self.test_images, self.test_labels)
        if self.test_images.shape[1:] != self.image_shape:
            raise UserError(
                f"{self.name}: training images are {self.image_shape}, "
                f"test images {self.test_images.shape[1:]}; give both the same shape."
            )

    def _check(
        self, part: str, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer]
    ) -> None:
        if images.dtype != np.uint8 or images.ndim != len(IMAGE_AXES):
            raise UserError(
                f"{self.name}: {part} images are {images.dtype} of shape {images.shape}; "
                "expected uint8 of shape (images, height, width, channels)."
            )
        if not np.issubdtype(labels.dtype, np.integer) or labels.shape != images.shape[:1]:
            raise UserError(
                f"{self.name}: {part} labels are {labels.dtype} of shape {labels.shape}; "
                f"expected one integer for each of the {len(images):,} images."
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < self.classes:
            raise UserError(
                f"{self.name}: {part} labels go from {labels.min()} to {labels.max()}; "
                f"expected 0 to {self.classes - 1}, one for each class name."
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        _, height, width, channels = self.train_images.shape
        return height, width, channels

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    def subset(self, n: int, *, seed: int | None = None) -> "ImageData":
        """Take `n` training images, and at most `n` test images.

        Args:
            n: Number of training images, from 1 to all of them. If there are fewer test images than
                `n`, all of them are kept.
            seed: None takes the first images; a number draws images at random, without repetition,
                the same ones for the same seed.

        Raises:
            UserError: If `n` is less than 1 or more than there are training images.

        Example:
            >>> kdist.data.fashion_mnist(sample=True).subset(512).train_images.shape
            (512, 28, 28, 1)
        """
        if not 1 <= (as_integer(n) or 0) <= len(self.train_images):
            raise UserError(
                f"A subset of {n!r} images of {self.name} was asked for; expected an integer "
                f"from 1 to {len(self.train_images)}, the training images there are."
            )
        train: slice | npt.NDArray[np.intp] = slice(n)
        test: slice | npt.NDArray[np.intp] = slice(n)
        if seed is not None:
            random = np.random.default_rng(seed)
            train = random.permutation(len(self.train_images))[:n]
            test = random.permutation(len(self.test_images))[:n]
        return dataclasses.replace(
            self,
            train_images=self.train_images[train],
            train_labels=self.train_labels[train],
            test_images=self.test_images[test],
            test_labels=self.test_labels[test],
        )
