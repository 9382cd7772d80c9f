"""`kdist launch --elastic` with small programs: who goes on when workers are lost."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
from kdist.workers.launcher import fitting_workers

SECONDS = 900  # no test takes as long
HEAD = """
    import os, signal, sys
    from kdist.processes.child import send_answer
    rank, attempt = (int(os.environ[n]) for n in ("KDIST_RANK", "KDIST_RESTART_COUNT"))
    size = int(os.environ["KDIST_WORLD_SIZE"])
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    send_answer(replicas=1, shards=None)  # as a strategy does

    def say_and_lose(lost):  # a worker; the others notice it
        print(attempt, size, gpus, flush=True)
        os.symlink(f"/proc/{os.getpid()}", f"said-{attempt}-{rank}")
        for other in range(size):
            while not os.path.lexists(f"said-{attempt}-{other}"):
                signal.sigtimedwait([], 0.01)
        if rank == lost:
            os.kill(os.getpid(), signal.SIGKILL)
        while os.path.exists(f"said-{attempt}-{lost}"):
            signal.sigtimedwait([], 0.01)
        os._exit(75)
"""


@pytest.fixture
def launch(tmp_path):
    """Starts `kdist launch --elastic`; ends what a test leaves."""
    started = []

    def start(program, *options, **environment):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(HEAD) + textwrap.dedent(program))
        process = subprocess.Popen(
            [sys.executable, "-m", "kdist", "launch", "--elastic", *options, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process):
    output, errors = process.communicate(timeout=SECONDS)
    return process.returncode, sorted(output.splitlines()), errors


def test_workers_that_are_killed_are_replaced_by_fewer(launch):
    process = launch(
        """
        if size > 1:
            say_and_lose(1)
        print(attempt, size, gpus)
        """,
        "--workers=3",
        CUDA_VISIBLE_DEVICES="0,1,2,3,4,5",
    )
    code, lines, errors = end(process)
    assert code == 0, errors
    assert lines == [
        "2 1 0,1",
        "[0] 0 3 0,1",
        "[0] 1 2 0,1",
        "[1] 0 3 2,3",
        "[1] 1 2 4,5",  # not the GPUs of the worker that was lost
        "[2] 0 3 4,5",
    ]
    assert re.findall("restarts with .*", errors) == [
        "restarts with 2 workers",
        "restarts with 1 worker",
    ]


def test_their_replicas_divide_the_shards(launch):
    process = launch(
        """
        send_answer(replicas=2, shards=8)
        if not attempt:
            say_and_lose(1)
        print(attempt, size)
        """,
        "--workers=4",
    )
    code, lines, errors = end(process)
    assert code == 0, errors
    assert {line[4:] for line in lines if line.endswith(" 2")} == {"1 2"}


def test_an_error_is_no_loss(launch):
    program = "rank and print(attempt, size, flush=True); sys.exit(rank)"
    code, lines, errors = end(launch(program, "--workers=2"))
    assert (code, lines) == (1, ["[1] 0 2"]), errors
    code, lines, errors = end(launch(program, "--workers=2", "--max-restarts=1"))
    assert (code, lines) == (1, ["[1] 0 2", "[1] 1 2"]), errors


def test_the_last_worker_is_not_replaced(launch):
    code, lines, _ = end(launch("print(attempt, flush=True); os.kill(os.getpid(), 9)"))
    assert (code, lines) == (137, ["0"])
    code, lines, _ = end(
        launch("print(attempt, flush=True); os.kill(os.getpid(), 9)", "--max-restarts=1")
    )
    assert (code, lines) == (137, ["0", "1"])


@pytest.mark.parametrize(
    ("available", "replicas", "shards", "found"),
    [
        (3, 1, None, 3),
        (3, 1, 4, 2),
        (5, 1, 8, 4),
        (3, 2, 4, 2),
        (2, 3, 4, 1),  # none of them divides: the program says so
    ],
)
def test_workers_whose_replicas_divide_the_shards(available, replicas, shards, found):
    assert fitting_workers(available, replicas=replicas, shards=shards) == found
