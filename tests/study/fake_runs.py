"""Points that end at once, for what does not depend on a real run."""

import io

from kdist.study.sweep_kinds import ThroughputSweep
from kdist.study.sweep_run import sweep
from rich.console import Console

MACHINE = {"cpu": "some CPU", "cores": 2, "devices": ["CPU:0 some CPU"], "date": "2026-11-21"}

SMALL = {"dataset": "sample", "depth": 10}


def done_row(point, experiment, /, **values):
    """The row of a point whose steps take 0.1 seconds and 1 ms an image."""
    batch = point.axes["global_batch"]
    rate = batch / (0.1 + batch / 1000)
    speeds = {"images_per_sec_low": 0.9 * rate, "images_per_sec_high": 1.1 * rate}
    return (
        dict.fromkeys(experiment.columns())
        | {"name": point.name, "kind": experiment.kind, "status": "done", **point.axes}
        | {"images_per_sec": rate, "images_per_step": batch, "seconds": 1.0, "epochs": 3, **speeds}
        | values
    )


class FakeRuns:
    """Stands in for `run_point`, notes what it ran and does at a point what a test asks for."""

    def __init__(self):
        self.names = []
        self.at = {}

    def __call__(self, point, folder, experiment):
        assert list(folder.iterdir()) == []
        self.names.append(point.name)
        (folder / "run").mkdir()
        what = self.at.get(point.name, {})
        if isinstance(what, BaseException):
            raise what
        return done_row(point, experiment, **what)


def throughput(**values):
    settings = {"train": SMALL, "batch_sizes": [8, 16], "replicas": [1, 2], "epochs": 3}
    return ThroughputSweep(**{**settings, "rounds": 2, **values})


def run(runs, experiment=None, *, machine=MACHINE, terminal=False, **options):
    """Exit code and output of a sweep in the current folder."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200)
    code = sweep(
        experiment or throughput(),
        run_point=runs,
        machine=lambda: machine,
        console=console,
        **options,
    )
    return code, out.getvalue()
