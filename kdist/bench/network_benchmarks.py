"""Benchmarks of other networks, of inference, and of how long the first steps take."""

from .benchmark import Benchmark, Candidate, Comparison
from .benchmarks import KERAS, KERAS_MANY, MIRRORED, ONE, TWO

_STEPS_EACH = 128  # per execution, with which stock Keras is fastest
_EIGHT, _MIRRORED_EIGHT = "kdist, eight replicas", "stock MirroredStrategy, eight replicas"


def network_benchmarks() -> list[Benchmark]:
    """Return the benchmarks of training other networks than the WideResNet."""
    return [
        _network(
            "transformer encoder, 4 layers of 128, 64 tokens, dropout, batch 64",
            {"network": "transformer", "batch": 64, "steps": 4},
            goals=(1.1, 2),
        ),
        _network(
            "LSTM on 64 tokens, batch 64",
            {"network": "lstm", "batch": 64, "steps": 24},
            goals=(1, 1.3),
        ),
        _table(),
    ]


def inference_benchmarks() -> list[Benchmark]:
    """Return the benchmarks of `evaluate` and `predict`."""
    settings = {"network": "wide_resnet", "batch": 256, "steps": 6}
    return [
        _network(f"{task}, WRN-16-1, batch 256", {**settings, "task": task}, goals=(1, 1))
        for task in ("evaluate", "predict")
    ]


def first_steps() -> list[Benchmark]:
    """Return the benchmarks of the time until a training is under way.

    Those whose stock candidate traces for minutes come last.
    """
    deep = {"network": "mobilenet", "batch": 8, "steps": 2, "replicas": 2}
    title = "from the start of the process to the end of the first step, WRN-16-1"
    return [
        _start(title, {1: (ONE, KERAS), 2: (TWO, MIRRORED)}),
        _start(f"{title}, eight replicas", {8: (_EIGHT, _MIRRORED_EIGHT)}, goal=0.7),
        Benchmark(
            title="first fit of MobileNetV2, 52 batch norms",
            candidates=[
                _candidate(MIRRORED, "stock", deep),
                _candidate(TWO, "kdist", deep),
            ],
            comparisons=[Comparison(name=TWO, bases=(MIRRORED,), goal=0.15, of="seconds")],
            measured="first",
        ),
    ]


def _start(
    title: str, names: dict[int, tuple[str, str]], *, goal: float | None = None
) -> Benchmark:
    """Return a benchmark of starting processes: by replicas, the names of kdist's and stock's."""
    settings = {"network": "wide_resnet", "batch": 64, "steps": 1}
    return Benchmark(
        title=title,
        candidates=[
            _candidate(name, kind, {**settings, "replicas": replicas})
            for replicas, (ours, stock) in names.items()
            for name, kind in ((stock, "stock"), (ours, "kdist"))
        ],
        comparisons=[
            Comparison(name=ours, bases=(stock,), goal=goal, of="seconds")
            for ours, stock in names.values()
        ],
        measured="start",
    )


def _network(title: str, settings: dict[str, object], *, goals: tuple[float, float]) -> Benchmark:
    """Return a benchmark on one and two replicas, each against stock Keras."""
    return Benchmark(
        title=title,
        candidates=[
            _candidate(KERAS, "stock", settings),
            _candidate(MIRRORED, "stock", {**settings, "replicas": 2}),
            _candidate(ONE, "kdist", settings),
            _candidate(TWO, "kdist", {**settings, "replicas": 2}),
        ],
        comparisons=[
            Comparison(name=ONE, bases=(KERAS,), goal=goals[0]),
            Comparison(name=TWO, bases=(MIRRORED,), goal=goals[1]),
        ],
    )


def _table() -> Benchmark:
    settings = {"network": "table", "batch": 128, "steps": 4 * _STEPS_EACH}
    auto = {**settings, "steps_per_execution": "auto"}
    return Benchmark(
        title="table of 32 columns, 4 dense layers, batch 128",
        candidates=[
            _candidate(KERAS_MANY, "stock", {**settings, "steps_per_execution": _STEPS_EACH}),
            _candidate(ONE, "kdist", auto),
            _candidate(TWO, "kdist", {**auto, "replicas": 2}),
        ],
        comparisons=[Comparison(name=ONE, bases=(KERAS_MANY,), goal=1)],
    )


def _candidate(name: str, kind: str, settings: dict[str, object]) -> Candidate:
    return Candidate(
        name=name, workload=f"{kind}_network", settings=settings, stock=kind == "stock"
    )
