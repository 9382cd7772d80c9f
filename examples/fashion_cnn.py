"""A small convolutional network for Fashion-MNIST, to find its batch size and learning rate.

kdist find rate examples/fashion_cnn.py:build
kdist find batch examples/fashion_cnn.py:build --most 512
"""

import kdist
import keras


def build():
    """Return a compiled model."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(32, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
    return model


def data():
    """Return training and validation data: the sample of Fashion-MNIST that comes with kdist."""
    images = kdist.data.fashion_mnist(sample=True)
    training = images.train_images, images.train_labels
    return training, (images.test_images, images.test_labels)
