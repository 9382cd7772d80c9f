"""The examples for Slurm and Kubernetes, with programs that only note their calls."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kdist.errors import LOST_WORKER_EXIT_CODE
from kdist.signals import PreemptionSignals
from kdist.training.config import TrainConfig
from kdist.workers.hang_detection import HANG_EXIT_CODE
from kdist.workers.launch_options import WorkerSettings, worker_settings
from kdist.workers.tf_config import WorkerPlace, check_tf_config, worker_place

EXAMPLES = Path(__file__).parent.parent / "examples"
SLURM = EXAMPLES / "slurm.sh"
SEVERAL_NODES = EXAMPLES / "slurm_multi_node.sh"
REQUEUED = 128 + signal.SIGUSR1

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture
def job(tmp_path):
    """Runs the script as a job, whose programs note how they were called."""

    def run(*arguments, ends="exit 0", script=SLURM, **variables):
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        for name, then in {
            "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; "$@"',
            "kdist": ends,
            "mine": ends,
            "python": ends,
            "scontrol": "exit 0",
        }.items():
            (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$CALLS"\n{then}\n')
            (programs / name).chmod(0o755)
        calls = tmp_path / "calls"
        calls.write_text("")
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "SLURM_JOB_ID": "42",
            "SLURM_JOB_NAME": "kdist",
        }
        done = subprocess.run(
            ["bash", script, *arguments],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
        )
        return done.returncode, calls.read_text().splitlines(), done.stderr

    return run


@pytest.mark.parametrize("script", [SLURM, SEVERAL_NODES], ids=lambda path: path.stem)
def test_sbatch_is_asked_for_a_signal_in_time_and_a_requeue(script):
    options = dict(
        re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", script.read_text(), re.MULTILINE)
    )
    name, seconds = options["signal"].split("@")
    assert signal.Signals[f"SIG{name}"] == signal.SIGUSR1
    assert int(seconds) >= 60
    assert options["requeue"] == ""
    assert options["open-mode"] == "append"


def test_the_first_start_begins_a_run(job):
    saving = "--run-dir runs/kdist --checkpoint-every 300 --preemption-signal SIGUSR1"
    command = f"kdist train --recipe fast --epochs 9 {saving}"
    assert job("--recipe", "fast", "--epochs", "9")[:2] == (0, [f"srun {command}", command])
    assert job()[1][1] == f"kdist train --recipe accurate {saving}"


def test_kdist_train_has_the_settings_of_the_first_start():
    config = TrainConfig(run_dir="runs/kdist", checkpoint_every=300, preemption_signal="SIGUSR1")
    assert signal.Signals[config.preemption_signal] + 128 == REQUEUED


def test_a_start_after_it_resumes_the_run(job, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").write_text("{}")
    assert job("--recipe", "fast", SLURM_JOB_NAME="mine")[1][1] == "kdist train --resume runs/mine"
    assert job(RUN="runs/mine")[1][1] == "kdist train --resume runs/mine"


def test_a_script_of_ones_own_is_run_as_it_is(job):
    assert job("mine", "a file", "--epochs", "9")[1] == [
        "srun mine a file --epochs 9",
        "mine a file --epochs 9",
    ]


@pytest.mark.parametrize("ends", ["exit 138", "kill -USR1 $$"], ids=["saved", "not saved yet"])
def test_a_job_whose_time_is_over_is_requeued(job, ends):
    """The signal may come before the training could be saved."""
    status, calls, _ = job("mine", ends=ends)
    assert (status, calls[-1]) == (REQUEUED, "scontrol requeue 42")


@pytest.mark.parametrize(
    ("status", "program", "script"),
    [
        *((status, "mine", SLURM) for status in (0, 1, 2, 143, 137)),
        *((status, "train.py", SEVERAL_NODES) for status in (1, 2, 143)),
    ],
)
def test_no_other_end_is_requeued(job, status, program, script):
    found, calls, _ = job(program, ends=f"exit {status}", script=script)
    assert (found, len(calls)) == (status, 2)
    assert not [call for call in calls if call.startswith("scontrol")]


def test_there_is_an_end_to_restarts(job):
    status, calls, errors = job("mine", ends="exit 138", SLURM_RESTART_COUNT="100")
    assert (status, len(calls)) == (REQUEUED, 2)
    assert "restarted 100 times: not requeued" in errors


def test_the_status_is_that_of_a_checkpoint_after_the_signal():
    signals = PreemptionSignals(["SIGTERM", "SIGUSR1"])
    signals.install()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signals.uninstall()
    with pytest.raises(SystemExit) as ended:
        signals.check()
    assert ended.value.code == REQUEUED


def test_the_job_of_kubernetes():
    yaml = pytest.importorskip("yaml")
    claim, made = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    job, pod = made["spec"], made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # The API refuses rules for other pods.
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] > 30  # the default
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"]}
    rules = [(rule["action"], rule.get("onExitCodes")) for rule in job["podFailurePolicy"]["rules"]]
    codes = {code: action for action, on in rules if on for code in on["values"]}
    assert codes == {128 + signal.SIGTERM: "Ignore", 2: "FailJob"}
    assert all(on["containerName"] == container["name"] for _, on in rules if on)


def test_each_gpu_gets_a_worker_with_the_script_of_the_user(job):
    status, calls, _ = job("train.py", "--epochs", "9", script=SEVERAL_NODES)
    assert status == 0
    # srun's status is the highest of the workers', or 137 where it has killed one.
    command = "python train.py --epochs 9"
    assert calls == [f"srun --kill-on-bad-exit=0 {command}", command]
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", SEVERAL_NODES.read_text(), re.M))
    assert (options["gpus-per-task"], int(options["nodes"]) > 1) == ("1", True)
    variables = dict(re.findall(r"^export (KDIST_\w+)=(\d+)$", SEVERAL_NODES.read_text(), re.M))
    assert worker_settings(variables) != WorkerSettings()
    assert job(script=SEVERAL_NODES)[0] == 2


@pytest.mark.parametrize(
    "code", [LOST_WORKER_EXIT_CODE, HANG_EXIT_CODE, 128 + signal.SIGKILL, REQUEUED]
)
def test_a_job_that_lost_a_worker_is_requeued(job, code):
    status, calls, _ = job("train.py", script=SEVERAL_NODES, ends=f"exit {code}")
    assert (status, calls[-1]) == (code, "scontrol requeue 42")
    status, calls, errors = job(
        "train.py", script=SEVERAL_NODES, ends=f"exit {code}", SLURM_RESTART_COUNT="20"
    )
    assert (status, len(calls)) == (code, 2)
    assert "restarted 20 times: not requeued" in errors


def test_the_job_set_of_kubernetes(tmp_path):
    """With the variable that Kubernetes gives each pod, and a program in place of Python."""
    yaml = pytest.importorskip("yaml")
    claim, made = yaml.safe_load_all((EXAMPLES / "kubernetes_jobset.yaml").read_text())
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert made["spec"]["failurePolicy"]["maxRestarts"] > 0  # all workers are started again
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (kind,) = made["spec"]["replicatedJobs"]
    job = kind["template"]["spec"]
    assert (job["completionMode"], job["backoffLimit"]) == ("Indexed", 0)
    assert job["parallelism"] == job["completions"] == 4
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,), (volume,) = pod["containers"], pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert worker_settings(variables) != WorkerSettings()
    (tmp_path / "python").write_text('#!/bin/sh\necho "$TF_CONFIG" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    name = made["metadata"]["name"]
    addresses = [f"{name}-{kind['name']}-0-{index}.{name}:2222" for index in range(4)]
    for index in range(4):
        printed = subprocess.run(
            container["command"],
            env={
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "JOB_COMPLETION_INDEX": str(index),
                **variables,
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        config = printed.removesuffix(" train.py\n")
        assert json.loads(config)["cluster"] == {"worker": addresses}
        check_tf_config(config)
        assert worker_place({"TF_CONFIG": config}) == WorkerPlace(4, index == 0)
