"""Train one model on several workers of a Ray cluster, and go on after a failure.

    pip install '.[ray]'    # in a checkout of kdist
    python examples/ray_train.py --workers 2 --epochs 3

Ray Train places the workers, sets TF_CONFIG, which kdist reads, and when a worker is lost starts
all of them again, from the newest checkpoint that was reported.
"""

import argparse
import os
import tempfile
from pathlib import Path

import ray.train
from ray.train.tensorflow import TensorflowTrainer

MODEL = "model.keras"


def train_worker(config: dict[str, int]) -> None:
    """What each worker runs; TensorFlow is imported here, as Ray pickles this function.

    Args:
        config: `epochs`, the number of `images`, and the global `batch_size`.
    """
    # Ray asks TensorFlow for Keras 2.
    os.environ.pop("TF_USE_LEGACY_KERAS", None)
    import kdist
    import keras
    from kdist.callbacks import StopAtNonFinite
    from kdist.models import WideResNet

    strategy = kdist.MultiWorkerMirroredStrategy()

    class Report(keras.callbacks.Callback):
        """Gives Ray the metrics of each epoch, from all workers, and the chief's model."""

        def on_epoch_end(self, epoch, logs=None):
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if strategy.is_chief:
                    self.model.save(Path(folder, MODEL))
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
                ray.train.report({"epoch": epoch + 1, **logs}, checkpoint=checkpoint)

    data = kdist.data.fashion_mnist(sample=True).subset(config["images"])
    # The same batches in each epoch, also after a restart.
    train = kdist.data.training_batches(
        data.train_images,
        data.train_labels,
        batch_size=config["batch_size"],
        seed=0,
        standardization=kdist.data.Standardization.of(data.train_images),
    )
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        keras.utils.set_random_seed(0)
        model = strategy.build(lambda: WideResNet(input_shape=(28, 28, 1), classes=10, width=1))
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    else:
        with checkpoint.as_directory() as folder, strategy.scope():
            model = keras.models.load_model(Path(folder, MODEL))
    done = int(model.optimizer.iterations.numpy()) // int(train.cardinality().numpy())
    print(f"worker {strategy.worker} of {strategy.workers}: {done} epochs are done", flush=True)
    callbacks = [StopAtNonFinite(), Report()]
    model.fit(train, epochs=config["epochs"], initial_epoch=done, verbose=0, callbacks=callbacks)


def main() -> None:
    """Run the workers, and print the last metrics."""
    options = argparse.ArgumentParser()
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--batch-size", type=int, default=128, help="of all workers together")
    options.add_argument("--images", type=int, default=10_000)
    options.add_argument("--gpus", action="store_true", help="one for each worker")
    options.add_argument("--storage", default=os.path.abspath("ray_results"))
    given = options.parse_args()
    trainer = TensorflowTrainer(
        train_worker,
        train_loop_config={
            "epochs": given.epochs,
            "images": given.images,
            "batch_size": given.batch_size,
        },
        scaling_config=ray.train.ScalingConfig(num_workers=given.workers, use_gpu=given.gpus),
        run_config=ray.train.RunConfig(
            storage_path=given.storage,
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    result = trainer.fit()
    print(f"epoch {result.metrics['epoch']}: accuracy {result.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
