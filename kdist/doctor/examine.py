"""`examine_machine`: all checks, in a process that may crash or hang without ending the others.

`python -m kdist.doctor.examine` is that process. If it ends within a check, that is what was found,
and another one goes on with the next check.
"""

import dataclasses
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from ..errors import UserError
from ..launch import child
from .finding import Finding
from .gpu_driver import check_driver, check_gpus
from .machine import (
    check_cores,
    check_disk,
    check_memory,
    check_shared_memory,
    check_versions,
    check_wandb,
)
from .tensorflow_checks import (
    build_info,
    check_all_reduce,
    check_cuda_packages,
    check_imports,
    check_tensorflow_gpus,
    check_tf_config,
)

_COMMAND = (sys.executable, "-m", "kdist.doctor.examine")
_PAUSE_SECONDS = 0.05
_LAST_LINES = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """Something to examine.

    Attributes:
        name: What it is.
        find: Examines it.
        seconds: After so many it is ended.
        needs: Names of checks; if one of them finds something broken, there is no line of this.
        remedy: What to do if it crashes or hangs.
    """

    name: str
    find: Callable[[], Finding | Sequence[Finding]]
    seconds: float = 60
    needs: tuple[str, ...] = ()
    remedy: str = "report this, with the output of kdist doctor --json"


def all_checks(replicas: int | None, run_dir: str) -> list[Check]:
    """Return the checks, in the order of the screen."""
    tensorflow = ("TensorFlow",)
    return [
        Check("packages", check_versions),
        Check("cores", check_cores),
        Check("memory", check_memory),
        Check("/dev/shm", check_shared_memory),  # noqa: S108 - a name
        Check("run folder", lambda: check_disk("run folder", run_dir, option="--run-dir")),
        Check(
            "temp folder",
            lambda: check_disk("temp folder", tempfile.gettempdir(), option="TMPDIR"),
        ),
        Check("W&B", check_wandb, remedy="set WANDB_MODE=offline; pip install --upgrade wandb"),
        Check(
            "TensorFlow",
            check_imports,
            seconds=180,  # a first start reads a gigabyte of files
            remedy="after SIGILL use a CPU with AVX; if it hangs, a local disk for the environment;"
            " else pip install --force-reinstall tensorflow",
        ),
        Check(
            "GPU driver",
            lambda: check_driver(str(build_info().get("cuda_version") or "")),
            remedy="restart the machine; then run nvidia-smi, and see `sudo dmesg | grep -i nvrm`",
        ),
        Check(
            "GPUs",
            lambda: check_gpus(build_info().get("cuda_compute_capabilities", ())),
            needs=("GPU driver",),
        ),
        Check(
            "GPUs in TensorFlow",
            check_tensorflow_gpus,
            needs=tensorflow,
            remedy="see the line of the GPU driver, and restart the machine",
        ),
        Check("CUDA packages", check_cuda_packages, needs=tensorflow),
        Check("TF_CONFIG", check_tf_config, needs=tensorflow),
        Check(
            "all-reduce",
            lambda: check_all_reduce(replicas),
            seconds=120,
            needs=("TensorFlow", "TF_CONFIG"),
            remedy="see the lines of the CUDA packages; NCCL_DEBUG=INFO",
        ),
    ]


def examine_machine(*, replicas: int | None = None, run_dir: str = "runs") -> list[Finding]:
    """Examine the machine; no check that fails, crashes or hangs ends the others.

    Args:
        replicas: Of the all-reduce; `None` for every GPU, else two logical CPUs.
        run_dir: The folder in which runs are saved.
    """
    orders = {"replicas": replicas, "run_dir": run_dir}
    return run_checks(all_checks(replicas, run_dir), [*_COMMAND], orders)


def run_checks(
    checks: Sequence[Check], command: Sequence[str], orders: Mapping[str, object]
) -> list[Finding]:
    """Run checks in a process, and in another one whenever it ends within one.

    Args:
        checks: What is examined.
        command: A program that calls `answer_checks` with them.
        orders: Passed to it, with the names of checks that are done.
    """
    found: dict[str, list[Finding]] = {}
    while left := [check for check in checks if check.name not in found]:
        done = {name: any(map(_is_broken, findings)) for name, findings in found.items()}
        with (
            tempfile.TemporaryFile() as said,
            child.Child(
                command,
                orders={**orders, "done": done},
                # TensorFlow's messages say which library it could not load.
                environment={"TF_CPP_MIN_LOG_LEVEL": "0"},
                output=said,
                errors=said,
            ) as process,
        ):
            for check in left:
                if why := _why_no_answer(process, check):
                    text = ": ".join(filter(None, [why, _last_lines(said)]))
                    found[check.name] = [Finding(check.name, "broken", text, check.remedy)]
                    break
                found[check.name] = [Finding(**one) for one in process.answers[check.name]]
    return [one for findings in found.values() for one in findings]


def _why_no_answer(process: child.Child, check: Check) -> str:
    """Wait for the answer; returns why there is none, empty if there is one."""
    end = time.monotonic() + check.seconds
    while time.monotonic() < end:
        code = process.code  # before its answers, of which none comes after its end
        if check.name in process.answers:
            return ""
        if code is not None and code < 0:
            return f"the process was ended by {signal.Signals(-code).name}"
        if code is not None:
            return f"the process ended with exit code {code}"
        time.sleep(_PAUSE_SECONDS)
    return f"not done after {check.seconds:g} seconds"


def _last_lines(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    return " ".join([line for line in lines if line.strip()][-_LAST_LINES:])


def _is_broken(one: Finding) -> bool:
    return one.state == "broken"


def answer_checks(checks: Sequence[Check]) -> None:
    """In the process: run those checks that are not done, and answer what each found."""
    broken = dict(child.orders()["done"])
    for check in checks:
        if check.name in broken:
            continue
        findings = _find(check, broken)
        broken[check.name] = any(map(_is_broken, findings))
        child.answer(**{check.name: [dataclasses.asdict(one) for one in findings]})


def _find(check: Check, broken: dict[str, bool]) -> list[Finding]:
    if any(broken.get(needed) for needed in check.needs):
        return []
    try:
        found = check.find()
        return [found] if isinstance(found, Finding) else list(found)
    except UserError as error:  # says itself what to do
        return [Finding(check.name, "broken", str(error))]
    except Exception as error:
        text = f"the check failed: {type(error).__name__}: {error}"
        return [Finding(check.name, "broken", text, check.remedy)]


if __name__ == "__main__":
    given = child.orders()
    answer_checks(all_checks(given["replicas"], given["run_dir"]))
