"""`examine_machine`: all findings, in the order of the screen."""

from collections.abc import Callable

from ..errors import UserError
from .finding import Finding, examine
from .gpus import find_driver, find_gpus, find_peer_access
from .machine import (
    Machine,
    find_cores,
    find_disk,
    find_keras_folder,
    find_memory,
    find_onednn,
    find_shared_memory,
    find_temporary_folder,
)
from .software import find_packages, find_python
from .tensorflow_facts import TensorFlowFacts, read_facts
from .tensorflow_findings import (
    find_all_reduce,
    find_imports,
    find_libraries,
    find_tensorflow_gpus,
    find_tf_config,
)
from .wandb_access import find_wandb


def examine_machine(
    *,
    replicas: int | None = None,
    run_dir: str = "runs",
    machine: Machine | None = None,
    facts_of: Callable[[int], TensorFlowFacts] = read_facts,
) -> list[Finding]:
    """Examine the machine; no probe that fails or hangs ends the others.

    Args:
        replicas: Of the all-reduce; `None` for every GPU, else two logical CPUs.
        run_dir: The folder in which runs are saved.
        machine: What is examined; by default the machine that this runs on.
        facts_of: Asks TensorFlow, with the number of replicas or 0.

    Raises:
        UserError: There cannot be so many replicas.

    Example:
        >>> from kdist.doctor.run import examine_machine
        >>> findings = examine_machine(replicas=2)  # doctest: +SKIP
    """
    here = machine or Machine()
    findings = [*examine("Python", find_python), *examine("packages", find_packages)]
    try:
        found = facts_of(replicas or 0)
    except OSError as error:  # no process can be started
        found = TensorFlowFacts(errors={"tensorflow": str(error)})
    refused = found.errors.get("all_reduce", "")
    if replicas is not None and refused.startswith("UserError: received replicas="):
        raise UserError(refused.removeprefix("UserError: "))
    findings += examine("import tensorflow", lambda: find_imports(found))
    cuda = found.build("cuda_version") or ""
    capabilities = found.build("cuda_compute_capabilities") or ()
    driver = find_driver(here, cuda=cuda)
    gpus = driver.gpus
    findings.append(driver.finding)
    findings += examine("GPUs", lambda: find_gpus(gpus, capabilities=capabilities))
    findings += examine(
        "GPUs in TensorFlow", lambda: find_tensorflow_gpus(found, driver, here.environment)
    )
    findings += examine("CUDA", lambda: find_libraries(found, driver))
    findings += examine("peer access", lambda: find_peer_access(gpus))
    findings += examine("TF_CONFIG", lambda: find_tf_config(found, here.environment))
    findings += examine("all-reduce", lambda: find_all_reduce(found))
    findings += examine("oneDNN", lambda: find_onednn(here))
    findings += examine("cores", lambda: find_cores(here))
    findings += examine("memory", lambda: find_memory(here))
    findings += examine("shared memory", lambda: find_shared_memory(here))
    findings += examine("run folder", lambda: find_disk("run folder", run_dir, option="--run-dir"))
    findings += examine("temp folder", lambda: find_temporary_folder(here.environment))
    findings += examine("Keras's cache", lambda: find_keras_folder(here.environment))
    findings += examine("W&B", lambda: find_wandb(here))
    return findings
