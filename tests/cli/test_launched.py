"""`kdist launch` of commands that start their workers themselves."""

import os

import kdist.cli
import pytest
from kdist.cli.launch import command_with_workers, keep_program
from kdist.errors import UserError
from kdist.launch.launch_options import LaunchOptions
from kdist.study.search_settings import Search

SWEEP = ("-m", "kdist", "sweep")


@pytest.fixture
def started(monkeypatch, capsys):
    """The sweep or search that a command line starts, which is not done; or code and error."""
    seen = []

    def sweep(experiment, **options):
        seen.append(experiment)
        return 0

    monkeypatch.setattr("kdist.study.sweep_run.sweep", sweep)
    monkeypatch.setattr("kdist.study.search_run.tune", seen.append)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run(line):
        monkeypatch.setattr("sys.argv", ["kdist", *line.split()])
        with pytest.raises(SystemExit) as end:
            kdist.cli.main()
        return seen.pop() if not end.value.code else (end.value.code, capsys.readouterr().err)

    return run


@pytest.mark.parametrize("kind", ["throughput", "accuracy", "scaling --replicas 1"])
def test_a_launched_sweep_is_one_of_workers(started, kind):
    launched = started(f"launch --workers 2 -m kdist sweep {kind} --depth 10")
    assert launched == started(f"sweep {kind} --depth 10 --workers 2")
    assert launched.workers == [2]


def test_a_launched_search_is_one_of_workers(started):
    launched = started("launch --workers 3 -m kdist tune --depth 10")
    assert launched == started("tune --depth 10 --workers 3")
    assert (launched.per_trial, launched.devices, launched.config.replicas) == (1, 3, None)
    assert launched == started("tune --depth 10 --per-trial 1 --devices 3")
    assert started("tune --workers 2 --replicas 3") == Search(per_trial=3, devices=6)
    assert started("launch --workers 1 -m kdist tune --replicas 2") == started("tune --replicas 2")


def test_without_a_number_there_is_a_worker_for_each_gpu(started, monkeypatch):
    assert started("launch -m kdist sweep throughput").workers == [1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert started("launch -m kdist sweep throughput").workers == [4]
    assert started("launch -m kdist tune").devices == 4
    assert started("launch --workers 2 -m kdist tune") == Search(per_trial=2, devices=4)


def test_limits_of_workers_reach_those_of_a_point(started, monkeypatch):
    monkeypatch.setenv("KDIST_HANG_SECONDS", "9")  # restores it
    started("launch --workers 2 --hang-seconds 70 -m kdist sweep throughput")
    assert float(os.environ["KDIST_HANG_SECONDS"]) == 70


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--workers 2 -m kdist sweep throughput --workers=2", "both before and after kdist sweep"),
        ("--workers 2 --port 2000 -m kdist sweep throughput", "received --port 2000, but kdist"),
        ("--max-restarts 1 -m kdist sweep accuracy", "received --max-restarts 1, but kdist sweep"),
        ("--hang-seconds 70 -m kdist tune", "received --hang-seconds 70.0, but kdist tune"),
        (
            "--machines a,b --machine-rank 0 -m kdist sweep scaling",
            "several machines and kdist sweep, whose points train on one machine",
        ),
        ("--machines a,b --machine-rank 1 -m kdist tune", "with KERASTUNER_TUNER_ID"),
        ("--workers 2 -m kdist sweep nosuch", 'Unknown command "nosuch"'),
        ("--workers 2 -m kdist sweep accuracy --nosuch", "Unknown option: --nosuch"),
        ("--workers 2 -m kdist tune --per-trial 1", "received --workers 2 and --per-trial 1"),
        ("--workers 2 -m kdist tune --devices 2", "received --workers 2 and --devices 2"),
    ],
)
def test_a_mistake_is_one_line(started, line, words):
    code, error = started(f"launch {line}")
    assert code == 2
    assert words in error
    assert error.count("\n") == 1


def test_gpus_have_to_suffice_for_a_search(started, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    for options, words in (
        ("--workers 3", "3 workers cannot share 4 GPUs evenly"),
        ("--workers 2 --replicas 3", "received 2 workers with 3 replicas each, but 4 GPUs"),
    ):
        code, error = started(f"tune {options}")
        assert (code, words in error) == (2, True), error
    assert started("tune --workers 2 --replicas 1") == Search(per_trial=1, devices=2)


def test_help_is_that_of_the_command(started, capsys):
    for command in ("sweep", "sweep --help", "sweep accuracy --help", "tune --help"):
        with pytest.raises(IndexError):  # nothing is started
            started(f"launch --workers 2 -m kdist {command}")
        assert f"Usage: kdist {command.removesuffix(' --help')}" in capsys.readouterr().out


def test_debug_is_taken_from_the_command():
    launched = ["launch", "--workers", "2"]
    assert keep_program([*launched, *SWEEP, "accuracy", "--debug"]) == (
        [*launched, "--debug", "--", *SWEEP, "accuracy"]
    )
    mine = ["mine.py", "--debug"]
    assert keep_program([*launched, *mine]) == [*launched, "--", *mine]


def test_a_slurm_job_of_several_nodes_is_refused(monkeypatch):
    monkeypatch.setattr("kdist.launch.cluster._scontrol", lambda nodes: nodes.split(","))
    monkeypatch.setenv("SLURM_NODEID", "0")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a")
    options = LaunchOptions(slurm=True, workers=2)
    program = [*SWEEP, "scaling", "mine.py:build"]
    assert command_with_workers(program, options).arguments == (
        *("sweep", "scaling", "--workers", "2", "mine.py:build"),
    )
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b")
    with pytest.raises(UserError, match="run kdist sweep --workers N on one of them"):
        command_with_workers(program, options)
