"""The error of the ring model of `kdist.performance.step_time` for published results.

    python -m benchmarks.prediction

Nothing is fitted: computation is what the same source measured on one GPU, bytes are the model's
weights, links have NCCL's figures. The fraction of communication that a framework hides was not
published, so there are predictions for none, half and all of it. Errors are those for half, in
percentage points of efficiency, and above 0 if the prediction is too high.
"""

import dataclasses
import math
import statistics

from kdist.performance.links import LINKS, Link, choose_link
from kdist.performance.step_time import StepTime, predict_step

FUSION_BYTES = 64 * 2**20  # Horovod's default, docs/tensor-fusion.rst

# Weights of float32: Keras's VGG16, InceptionV3 and ResNet101, torchvision's ResNet-50, and
# BERT-base with its pre-training heads.
WEIGHTS = {
    "VGG-16": 138_357_544,
    "Inception V3": 23_817_352,
    "ResNet-101": 44_601_832,
    "ResNet-50": 25_557_032,
    "BERT-base": 110_106_428,
}


@dataclasses.dataclass(frozen=True)
class Published:
    """A published efficiency, and the published step time of one GPU."""

    table: str
    model: str
    framework: str
    gpus: int
    efficiency: float
    compute_seconds: float
    link: Link

    def predict(self, overlap: float) -> StepTime:
        """Return the model's prediction."""
        size = 4 * WEIGHTS[self.model]
        return predict_step(
            compute_seconds=self.compute_seconds,
            gradient_bytes=size,
            replicas=self.gpus,
            link=self.link,
            collectives=math.ceil(size / FUSION_BYTES),
            overlap=overlap,
        )

    def error(self, overlap: float = 0.5) -> float:
        """Return predicted minus published efficiency, in percentage points."""
        return 100 * (self.predict(overlap).efficiency - self.efficiency)


# 4 Pascal GPUs a server, 25 Gb/s RoCE, ring all-reduce (Sergeev & Del Balso 2018, "Horovod", arXiv
# 1802.05799): 512 GPUs in Horovod's docs/benchmarks.rst, commit 27743d0; 128 GPUs in its
# docs/benchmarks.md of 2017. One GPU is a P100 of TensorFlow's own benchmarks by the same script
# and batch, 64 (docs_src/performance/benchmarks.md, May 2017: 154 and 142 images/s). ResNet-101 is
# a GPU's part of the 1656.82 images/s of 16 GPUs that Horovod's page prints, their communication
# included.
_HOROVOD = {  # model: seconds of one GPU, efficiency on 128 and 512 GPUs
    "VGG-16": (64 / 154, 0.79, 0.68),
    "Inception V3": (64 / 142, 0.90, 0.90),
    "ResNet-101": (64 * 16 / 1656.82, 0.90, 0.90),
}
_ROCE_25 = choose_link("ethernet", bytes_per_second=LINKS["ethernet"].bytes_per_second / 4)

# DLPerf Benchmark Test Report V1.0, August 2020: 8 V100-SXM2 a node, one 100 Gb/s InfiniBand card,
# float32 without XLA (github.com/Oneflow-Inc/DLPerf, reports/dlperf_benchmark_test_report_v1.md,
# commit 0770fdf). Samples/s on 1, 8, 16 and 32 GPUs, and the batch of a GPU. Every framework that
# was run on all of them.
_DLPERF = {
    "ResNet-50": {
        "OneFlow": (128, 384.85, 2969.45, 5906.55, 11711.18),
        "TensorFlow 1": (128, 362.44, 2721.98, 5099.42, 9514.64),
        "MXNet": (96, 389.71, 2947.72, 5684.68, 10419.21),
        "PyTorch": (128, 354.40, 2719.07, 5307.21, 10632.33),
        "PaddlePaddle": (128, 352.72, 2625.38, 4895.27, 9348.17),
        "TensorFlow 2": (128, 321.80, 2458.74, 4849.68, 9418.44),
    },
    "BERT-base": {
        "OneFlow": (32, 145.21, 1042.98, 1890.26, 3715.08),
        "TensorFlow 1": (32, 106.80, 806.56, 1090.20, 1923.68),
        "MXNet": (32, 127.05, 928.03, 1136.44, 1895.50),
        "PaddlePaddle": (32, 132.64, 615.12, 1116.02, 2073.60),
    },
}
_NVLINK_V100 = choose_link("nvlink", bytes_per_second=6 * 20e9)  # NCCL's topo.h, SM70_NVLINK_BW
_DLPERF_LINKS = {8: _NVLINK_V100, 16: LINKS["ethernet"], 32: LINKS["ethernet"]}

TABLE = (
    *(
        Published("Horovod", model, "TensorFlow 1", gpus, efficiency, seconds, _ROCE_25)
        for model, (seconds, *efficiencies) in _HOROVOD.items()
        for gpus, efficiency in zip((128, 512), efficiencies, strict=True)
    ),
    *(
        Published("DLPerf", model, framework, gpus, rate / gpus / one, batch / one, link)
        for model, frameworks in _DLPERF.items()
        for framework, (batch, one, *rates) in frameworks.items()
        for (gpus, link), rate in zip(_DLPERF_LINKS.items(), rates, strict=True)
    ),
)


def report() -> str:
    """Return a Markdown table of all published efficiencies, and the errors by source and model."""
    lines = [
        "| table | model | framework | GPUs | published | hidden: 0 | half | all | error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[tuple[str, str], list[float]] = {}
    for row in TABLE:
        none, half, everything = (row.predict(overlap).efficiency for overlap in (0, 0.5, 1))
        lines.append(
            f"| {row.table} | {row.model} | {row.framework} | {row.gpus} | {row.efficiency:.1%} |"
            f" {none:.1%} | {half:.1%} | {everything:.1%} | {row.error():+.1f} |"
        )
        groups.setdefault((row.table, row.model), []).append(row.error())
    lines.append("")
    for (table, model), errors in groups.items():
        lines.append(
            f"{table}, {model}: error {statistics.fmean(errors):+.1f} points on average, from"
            f" {min(errors):+.1f} to {max(errors):+.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
