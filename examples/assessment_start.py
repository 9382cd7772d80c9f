"""The assessment's exercise: a script for one GPU, to be trained on all of them.

python examples/assessment_start.py           # on one GPU, else the CPU
kdist assess examples/assessment_start.py     # on all of them: what is missing
"""

import kdist
import keras

EPOCHS, BATCH_SIZE, RATE = 6, 64, 0.02

data = kdist.data.fashion_mnist(sample=True)
standardization = kdist.data.Standardization.of(data.train_images)
train = kdist.data.training_batches(
    data.train_images,
    data.train_labels,
    batch_size=BATCH_SIZE,
    seed=0,
    augment=False,
    standardization=standardization,
)
test = kdist.data.evaluation_batches(
    data.test_images, data.test_labels, batch_size=500, standardization=standardization
)

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input(data.image_shape),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(data.classes, activation="softmax"),
    ]
)
model.compile(
    keras.optimizers.SGD(RATE, momentum=0.9),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
# `shuffle=False`: the pipeline has shuffled already.
model.fit(train, validation_data=test, epochs=EPOCHS, shuffle=False, verbose=2)
