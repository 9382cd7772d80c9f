"""An exercise: `kdist assess` says which line of the assessment this script does not pass.

kdist assess examples/assessment_rate.py
"""

import kdist
import keras
from kdist.schedules import WarmUp

EPOCHS, BATCH_SIZE, RATE = 6, 64, 0.02  # of one replica

strategy = kdist.MirroredStrategy()
replicas = strategy.num_replicas_in_sync

data = kdist.data.fashion_mnist(sample=True)
standardization = kdist.data.Standardization.of(data.train_images)
train = kdist.data.training_batches(
    data.train_images,
    data.train_labels,
    batch_size=BATCH_SIZE * replicas,
    seed=0,
    augment=False,
    standardization=standardization,
)
test = kdist.data.evaluation_batches(
    data.test_images, data.test_labels, batch_size=500, standardization=standardization
)

keras.utils.set_random_seed(0)
rate = WarmUp(RATE, steps=len(train))
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input(data.image_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(data.classes, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
# `shuffle=False`: the pipeline has shuffled already.
model.fit(train, validation_data=test, epochs=EPOCHS, shuffle=False, verbose=2)
