"""Profile a training step: milliseconds by kind of operation, from TensorFlow's profiler.

    python benchmarks/profile_step.py                  # kdist, one replica
    python benchmarks/profile_step.py --replicas 2
    python benchmarks/profile_step.py --stock          # stock Keras with TensorFlow's defaults

Prints milliseconds per step of each kind of operation, the most expensive first. Operations run in
parallel and wait for each other, so their sum is more than the step.
"""

# ruff: noqa: E402 - the first import determines TensorFlow's kernels
import argparse
import collections
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--stock", action="store_true", help="stock Keras without a strategy")
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--width", type=int, default=1)
parser.add_argument("--batch", type=int, default=128, help="global batch")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--rows", type=int, default=20)
args = parser.parse_args()

if args.stock:
    import tensorflow as tf  # before kdist, to use TensorFlow's defaults

import keras_candidates

if not args.stock:
    import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

turn, _ = keras_candidates.keras_turn(
    keras_candidates.network("wide_resnet", depth=args.depth, width=args.width),
    is_stock=args.stock,
    replicas=args.replicas,
    batch=args.batch,
    steps=args.steps,
)
turn()  # traces the step
turn()
with tempfile.TemporaryDirectory() as folder:
    tf.profiler.experimental.start(folder)
    seconds = turn()
    tf.profiler.experimental.stop()
    space = xplane_pb2.XSpace()
    space.ParseFromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())

milliseconds: collections.Counter[str] = collections.Counter()
times: collections.Counter[str] = collections.Counter()
for plane in space.planes:
    if not plane.name.startswith("/host:CPU"):
        continue
    for line in (line for line in plane.lines if line.name != "python"):
        for event in line.events:
            kind = plane.event_metadata[event.metadata_id].name.rpartition(":")[2]
            milliseconds[kind] += event.duration_ps / 1e9
            times[kind] += 1

print(
    f"{args.batch * args.steps / seconds:.0f} images/s,"
    f" {1000 * seconds / args.steps:.0f} ms per step"
)
print("| operation | ms per step | calls per step |")
print("| --- | --- | --- |")
for kind, total in milliseconds.most_common(args.rows):
    print(f"| {kind} | {total / args.steps:.1f} | {times[kind] / args.steps:.0f} |")
