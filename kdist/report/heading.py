"""What stands above a report's sections: its title, and where and when its runs were made."""

import datetime

from .. import __version__
from ..runs.run_record import RunRecord
from ..runs.text import count
from ..sweep.sweep_record import SweepRecord
from .inputs import Sources


def page_title(sources: Sources) -> str:
    """What was run, in a few words."""
    if len(sources.runs) == 1 and not sources.sweeps and not sources.typed:
        return sources.runs[0].name
    parts = [
        count(len(records), noun)
        for records, noun in (
            (sources.sweeps, "sweep"),
            (sources.runs, "run"),
            (sources.typed, "table"),
        )
        if records
    ]
    if len(sources.sweeps) == 1 and len(parts) == 1:
        return f"Sweep {sources.sweeps[0].name}"
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def page_facts(sources: Sources, today: datetime.date) -> list[str]:
    """Machines and data, then the date and the version that wrote the page."""
    machines = [
        *(_run_machine(run) for run in sources.all_runs),
        *(_sweep_machine(sweep) for sweep in sources.sweeps if not sweep.runs),
    ]
    data = [str(run.summary["data"]) for run in sources.all_runs if "data" in run.summary]
    written = f"written {today.isoformat()} by kdist {__version__}"
    return [*dict.fromkeys(filter(None, machines)), *dict.fromkeys(data), written]


def _run_machine(run: RunRecord) -> str:
    names = run.summary.get("device_names")
    kinds = ", ".join(dict.fromkeys(map(str, names))) if isinstance(names, list) else ""
    replicas = count(run.fact("replicas") or 1, "replica")
    return f"{replicas} on {kinds}" if kinds else replicas


def _sweep_machine(sweep: SweepRecord) -> str:
    """The GPUs of a sweep's machine, else its processor; empty where neither is known."""
    devices = sweep.machine.get("devices")
    names = map(str, devices if isinstance(devices, list) else ())
    gpus = [name for name in names if not name.startswith("CPU")]
    return ", ".join(gpus) or str(sweep.machine.get("cpu") or "")
