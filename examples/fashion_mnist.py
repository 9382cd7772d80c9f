"""The course lab's script on kdist: Fashion-MNIST, a WideResNet, as many GPUs as there are.

    python examples/fashion_mnist.py --epochs 1                 # every GPU, else the CPU
    python examples/fashion_mnist.py --replicas 2               # without a GPU: the CPU in two

Prints, after each epoch, Keras's line with `val_accuracy`, then `Images/sec` and the cumulative
training time. The lab's WRN-16-10 has 17 million parameters and needs a GPU; on a CPU the default
is WRN-16-1.
"""

import argparse

import kdist
import keras
from kdist.callbacks import PrintThroughput, PrintTotalTime, StopAtAccuracy, StopAtNonFinite
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--log-dir", help="folder for TensorBoard's files")
parser.add_argument("--batch-size", type=int, default=32, help="training images per replica")
parser.add_argument("--val-batch-size", type=int, default=32, help="validation images per replica")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--base-lr", type=float, default=0.01, help="learning rate for one replica")
parser.add_argument("--wd", type=float, default=0.000005, help="weight decay")
parser.add_argument("--target-accuracy", type=float, default=0.85, help="stop above this ...")
parser.add_argument("--patience", type=int, default=2, help="... for this many epochs in a row")
parser.add_argument("--replicas", type=int, help="default: every GPU, else the CPU")
parser.add_argument("--width", type=int, help="default: 10 on GPUs, 1 on a CPU")
parser.add_argument("--subset", type=int, help="train on this many images only")
args = parser.parse_args()

# 1. The strategy: one replica per GPU, or the CPU split into several. Make it before any tensor.
strategy = kdist.MirroredStrategy(replicas=args.replicas)
replicas = strategy.num_replicas_in_sync

# 2. The data: each batch is divided over the replicas, so the global batch grows with them.
data = kdist.data.fashion_mnist()
if args.subset is not None:
    data = data.subset(args.subset)
standardization = kdist.data.Standardization.of(data.train_images)
train = kdist.data.training_batches(
    data.train_images,
    data.train_labels,
    batch_size=args.batch_size * replicas,
    seed=0,
    standardization=standardization,
)
test = kdist.data.evaluation_batches(
    data.test_images,
    data.test_labels,
    batch_size=args.val_batch_size * replicas,
    standardization=standardization,
)

# 3. The model: its variables are on every replica, its batch norms use the global batch.
width = args.width
if width is None:
    width = 10 if "GPU" in strategy.devices[0] else 1
model = strategy.build(
    lambda: WideResNet(
        depth=16,
        width=width,
        input_shape=data.image_shape,
        classes=data.classes,
        weight_decay=args.wd,
    )
)

# 4. The learning rate, scaled with the global batch.
learning_rate = kdist.scale_learning_rate(args.base_lr, replicas=replicas)
with strategy.scope():
    model.compile(
        keras.optimizers.SGD(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )

# 5. Stock `fit`.
finite = StopAtNonFinite()
callbacks = [
    finite,
    PrintThroughput(),
    StopAtAccuracy(target=args.target_accuracy, patience=args.patience),
    PrintTotalTime(),
]
if args.log_dir:
    callbacks.append(keras.callbacks.TensorBoard(args.log_dir))
# `shuffle=False`: the pipeline has shuffled already.
model.fit(train, validation_data=test, epochs=args.epochs, callbacks=callbacks, shuffle=False)
if finite.found:
    raise SystemExit(1)
