"""The examples for Slurm and Kubernetes, with programs that only note their calls."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kdist.cli.launch import keep_program
from kdist.distribute.cluster import check_tf_config
from kdist.distribute.worker_watch import EXIT_CODE
from kdist.errors import LOST_CODE
from kdist.launch.launch_options import WorkerSettings, worker_settings
from kdist.signals import PreemptionSignals
from kdist.training.config import TrainConfig
from kdist.training.worker_place import WorkerPlace, worker_place

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
def test_the_script_is_bash(script):
    subprocess.run(["bash", "-n", script], check=True)


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


def test_each_node_gets_one_launcher_with_the_script_of_the_user(job):
    status, calls, _ = job("train.py", "--epochs", "9", script=SEVERAL_NODES)
    assert status == 0
    (srun, launched) = calls
    # srun's status is the highest of the launchers', or 137 where it has killed one.
    assert srun == f"srun --kill-on-bad-exit=0 {launched}"
    arguments = keep_program(launched.split()[1:])
    assert arguments[arguments.index("--") + 1 :] == ["train.py", "--epochs", "9"]
    assert "--slurm" in arguments
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", SEVERAL_NODES.read_text(), re.M))
    assert (options["ntasks-per-node"], int(options["nodes"]) > 1) == ("1", True)
    assert job(script=SEVERAL_NODES)[0] == 2


@pytest.mark.parametrize("code", [LOST_CODE, EXIT_CODE, 128 + signal.SIGKILL, REQUEUED])
def test_a_job_that_lost_a_worker_is_requeued(job, code):
    status, calls, _ = job("train.py", script=SEVERAL_NODES, ends=f"exit {code}")
    assert (status, calls[-1]) == (code, "scontrol requeue 42")
    status, calls, errors = job(
        "train.py", script=SEVERAL_NODES, ends=f"exit {code}", SLURM_RESTART_COUNT="20"
    )
    assert (status, len(calls)) == (code, 2)
    assert "restarted 20 times: not requeued" in errors


@pytest.mark.parametrize("code", [1, 2, 143])
def test_an_error_on_several_nodes_is_not_requeued(job, code):
    status, calls, _ = job("train.py", script=SEVERAL_NODES, ends=f"exit {code}")
    assert (status, len(calls)) == (code, 2)


def test_the_launchers_of_two_nodes_start_the_workers_of_one_cluster(tmp_path):
    """With Slurm's variables, and a program in place of its `scontrol`."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'node2\\nnode10\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text("import os; print(os.environ['TF_CONFIG'], flush=True)")
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "-1",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_NODELIST": "node[2,10]",
    }
    configs = []
    for node in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "kdist", "launch", "--slurm", "--workers", "2", program],
            env=environment | {"SLURM_NODEID": str(node), "SLURM_LOCALID": "0"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        configs += [json.loads(line.split("] ", 1)[1]) for line in sorted(done.stdout.splitlines())]
    assert [config["task"]["index"] for config in configs] == [0, 1, 2, 3]
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    hosts = [address.split(":")[0] for address in configs[0]["cluster"]["worker"]]
    assert hosts == ["node2", "node2", "node10", "node10"]
    for config in configs:
        check_tf_config(json.dumps(config))


def test_the_tfjob_of_kubernetes():
    """With `TF_CONFIG` as the training operator makes it of the manifest."""
    yaml = pytest.importorskip("yaml")
    claim, made = yaml.safe_load_all((EXAMPLES / "kubernetes_tfjob.yaml").read_text())
    assert (made["apiVersion"], made["kind"]) == ("kubeflow.org/v1", "TFJob")
    name, kinds = made["metadata"]["name"], made["spec"]["tfReplicaSpecs"]
    assert set(kinds) == {"Chief", "Worker"}
    cluster = {
        kind.lower(): [f"{name}-{kind.lower()}-{i}:2222" for i in range(spec["replicas"])]
        for kind, spec in kinds.items()
    }
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for kind, spec in kinds.items():
        assert spec["restartPolicy"] == "OnFailure"
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "tensorflow"
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
        (volume,) = pod["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        variables = {one["name"]: one["value"] for one in container["env"]}
        assert worker_settings(variables) != WorkerSettings()
        for index in range(spec["replicas"]):
            task = {"type": kind.lower(), "index": index}
            config = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
            check_tf_config(config)
            assert worker_place({"TF_CONFIG": config}) == WorkerPlace(4, kind == "Chief")
