"""What stands above a report's sections: its title, and where and when its runs were made."""

import datetime

from .. import __version__
from ..runs.run_record import RunRecord
from ..runs.text import count
from ..sweep.sweep_record import SweepRecord
from ..training.model_name import model_name
from .compared_results import shares_cores
from .inputs import Sources


def page_title(sources: Sources) -> str:
    """Say what was run, in a few words."""
    kinds = (
        (sources.sweeps, "sweep"),
        (sources.searches, "search"),
        (sources.runs, "run"),
        (sources.measurements, "table"),
    )
    parts = [_count(len(records), noun) for records, noun in kinds if records]
    if len(parts) > 1:
        return " and ".join([", ".join(parts[:-1]), parts[-1]])
    if len(sources.sweeps) == 1:
        return sweep_title(sources.sweeps[0])
    if len(sources.searches) == 1:
        return f"Search {sources.searches[0].name}"
    if len(sources.runs) == 1:
        return sources.runs[0].name
    if len(sources.measurements) == 1:
        return sources.measurements[0].name
    models = {model_name(run.settings) for run in sources.runs}
    return f"{parts[0]} of {models.pop()}" if len(models) == 1 else parts[0]


def sweep_title(sweep: SweepRecord) -> str:
    """Return the heading of a sweep's section."""
    if sweep.name == sweep.path.resolve().name:
        return f"Sweep {sweep.name}"
    return sweep.name[:1].upper() + sweep.name[1:]


def page_facts(sources: Sources, today: datetime.date) -> list[str]:
    """Name the machines and the data, then the date and the version that wrote the page."""
    machines = [
        *(_run_machine(run) for run in sources.all_runs),
        *(_sweep_machine(sweep) for sweep in sources.sweeps if not sweep.runs),
    ]
    data = [str(run.summary["data"]) for run in sources.all_runs if "data" in run.summary]
    written = f"written {today.isoformat()} by kdist {__version__}"
    return [*dict.fromkeys(filter(None, machines)), *dict.fromkeys(data), written]


def _count(number: int, noun: str) -> str:
    return f"{number} searches" if noun == "search" and number > 1 else count(number, noun)


def _run_machine(run: RunRecord) -> str:
    names = run.summary.get("device_names")
    kinds = ", ".join(dict.fromkeys(map(str, names))) if isinstance(names, list) else ""
    if not kinds:
        return ""
    replicas = count(run.fact("replicas") or 1, "replica")
    shared = " (logical CPUs, shared cores)" if run.shares_cores else ""
    return f"{replicas}{run.of_workers} on {kinds}{shared}"


def _sweep_machine(sweep: SweepRecord) -> str:
    """Name the GPUs of a sweep's machine, else its processor; empty if neither is known."""
    devices = sweep.machine.get("devices")
    names = map(str, devices if isinstance(devices, list) else ())
    gpus = [name for name in names if not name.startswith("CPU")]
    most = max((row["replicas"] for row in sweep.done), default=1)
    shared = " (logical CPUs, shared cores)" if shares_cores(sweep, most) else ""
    return ", ".join(gpus) or f"{sweep.machine.get('cpu') or ''}{shared}"
