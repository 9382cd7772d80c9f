"""The examples for Slurm and Kubernetes, with programs that only note their calls."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kdist.checkpoints.preemption import PreemptionSignals
from kdist.training.config import TrainConfig

EXAMPLES = Path(__file__).parent.parent / "examples"
SLURM = EXAMPLES / "slurm.sh"
REQUEUED = 128 + signal.SIGUSR1

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture
def job(tmp_path):
    """Runs the script as a job, whose programs note how they were called."""

    def run(*arguments, ends="exit 0", **variables):
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        for name, then in {
            "srun": '"$@"',
            "kdist": ends,
            "mine": ends,
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
            ["bash", SLURM, *arguments],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
        )
        return done.returncode, calls.read_text().splitlines(), done.stderr

    return run


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", SLURM], check=True)


def test_sbatch_is_asked_for_a_signal_in_time_and_a_requeue():
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", SLURM.read_text(), re.MULTILINE))
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
    """Also where the signal came before the training could be saved."""
    status, calls, _ = job("mine", ends=ends)
    assert (status, calls[-1]) == (REQUEUED, "scontrol requeue 42")


@pytest.mark.parametrize("status", [0, 1, 2, 143, 137])
def test_no_other_end_is_requeued(job, status):
    found, calls, _ = job("mine", ends=f"exit {status}")
    assert found == status
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
    assert signals.exit_status == REQUEUED


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
