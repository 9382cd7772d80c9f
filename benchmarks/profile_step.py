"""Where a training step's time goes: TensorFlow's profiler, summed by kind of operation.

    python benchmarks/profile_step.py                  # kdist, one replica
    python benchmarks/profile_step.py --replicas 2
    python benchmarks/profile_step.py --stock          # stock Keras, TensorFlow's own choices

Prints milliseconds a step of every kind of operation, the costliest first. Operations run side by
side and wait for each other, so the sum is more than the step.
"""

# ruff: noqa: E402 - what is imported first decides on TensorFlow's kernels
import argparse
import collections
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--stock", action="store_true", help="stock Keras without strategy")
parser.add_argument("--replicas", type=int, default=1)
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--width", type=int, default=1)
parser.add_argument("--batch", type=int, default=128, help="global batch")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--rows", type=int, default=20)
args = parser.parse_args()

if args.stock:
    import tensorflow as tf  # before kdist, so that it makes its own choices

from kdist.bench.workloads import WORKLOADS

if not args.stock:
    import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

settings = {"depth": args.depth, "width": args.width, "batch": args.batch, "steps": args.steps}
workload = WORKLOADS["keras" if args.stock else "kdist"](**settings, replicas=args.replicas)
workload.work()  # traced
workload.work()
with tempfile.TemporaryDirectory() as folder:
    tf.profiler.experimental.start(folder)
    seconds = workload.work()
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
    f"{args.batch * args.steps / seconds:.0f} images/s, {1000 * seconds / args.steps:.0f} ms a step"
)
print("| operation | ms a step | times |")
print("| --- | --- | --- |")
for kind, total in milliseconds.most_common(args.rows):
    print(f"| {kind} | {total / args.steps:.1f} | {times[kind] / args.steps:.0f} |")
