"""`kdist launch --elastic` with small programs: who goes on when workers or machines are lost."""

import os
import re
import socket
import subprocess
import sys
import textwrap

import pytest
from kdist.launch.launcher import fitting

SECONDS = 60  # no test takes as long
HEAD = """
    import json, os, signal, sys
    from kdist.launch.child import answer
    rank, attempt = (int(os.environ[n]) for n in ("KDIST_RANK", "KDIST_RESTART_COUNT"))
    size = int(os.environ["KDIST_WORLD_SIZE"])
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    answer(replicas=1, shards=None)  # as a strategy does

    def wait_for(name):
        while not os.path.exists(name):
            signal.sigtimedwait([], 0.01)

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
    assert re.findall("goes on with .*", errors) == [
        "goes on with 2 workers",
        "goes on with 1 worker",
    ]


def test_their_replicas_divide_the_shards(launch):
    process = launch(
        """
        answer(replicas=2, shards=8)
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
        ([3], 1, None, [3]),
        ([3], 1, 4, [2]),
        ([2, 2, 1], 1, 8, [2, 2, 0]),
        ([2, 0, 1], 2, 4, [2, 0, 0]),
        ([1, 1], 3, 4, [1, 0]),  # none of them divides: the program says so
    ],
)
def test_fitting(available, replicas, shards, found):
    assert fitting(available, replicas=replicas, shards=shards) == found


# Two machines, which are addresses of this one.


@pytest.fixture
def machines(launch):
    """Starts the launcher of a machine."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]

    def start(program, rank, *options):
        names = "127.0.0.1,127.0.0.2"
        return launch(
            program,
            f"--machines={names}",
            f"--machine-rank={rank}",
            f"--port={port}",
            *options,
        )

    start.port = port
    return start


TWO = """
    print(attempt, size, [address.split(":")[0] for address in cluster], flush=True)
    if size == 2 and not attempt:
        wait_for("lost")
        os._exit(75)
"""


def both_begun(machines, program, *options):
    """Start two launchers; return them once a worker of each has said something."""
    started = [machines(program, rank, *options) for rank in range(2)]
    for process in started:
        process.stdout.readline()
    return started


def test_a_lost_machine_is_left_out(machines, tmp_path):
    first, other = (machines(TWO, rank) for rank in range(2))
    assert first.stdout.readline() == "[0] 0 2 ['127.0.0.1', '127.0.0.2']\n"
    assert other.stdout.readline() == "[1] 0 2 ['127.0.0.1', '127.0.0.2']\n"
    other.kill()
    (tmp_path / "lost").touch()
    code, lines, errors = end(first)
    assert (code, lines) == (0, ["1 1 ['127.0.0.1']"]), errors
    assert "goes on with 1 worker on 1 machine" in errors


def test_a_machine_that_comes_again_takes_part_after_the_next_loss(machines, tmp_path):
    program = (
        TWO
        + """
    elif size == 1:
        wait_for("back")
        sys.exit(1)
"""
    )
    first, other = both_begun(machines, program, "--max-restarts=1")
    other.kill()
    other.communicate()
    (tmp_path / "lost").touch()
    assert first.stdout.readline() == "1 1 ['127.0.0.1']\n"
    again = machines(program, 1)
    assert again.stderr.readline().startswith("kdist launch: waits for the launcher of 127.0.0.1")
    (tmp_path / "back").touch()
    code, lines, errors = end(first)
    assert code == 0, errors
    assert lines == ["[0] 2 2 ['127.0.0.1', '127.0.0.2']"], errors
    code, lines, errors = end(again)
    assert (code, lines) == (0, ["[1] 2 2 ['127.0.0.1', '127.0.0.2']"]), errors


def test_a_machine_whose_workers_are_not_needed_ends_with_the_run(machines, tmp_path):
    program = """
    answer(replicas=1, shards=4)
    if not attempt:
        say_and_lose(3)
    print(attempt, size)
    """
    first, other = (machines(program, rank, "--workers=2") for rank in range(2))
    code, lines, errors = end(first)
    assert (code, lines[1::2]) == (0, ["[0] 1 2", "[1] 1 2"]), errors
    code, lines, errors = end(other)
    assert (code, len(lines)) == (0, 2), errors  # as three workers do not divide four shards


def test_a_machine_that_waits_ends_by_a_signal_and_nobody_waits_for_it(machines, tmp_path):
    first, other = both_begun(machines, TWO)
    other.terminate()
    code, _, errors = end(other)
    assert code == 143, errors
    (tmp_path / "lost").touch()
    assert end(first)[:2] == (0, ["1 1 ['127.0.0.1']"])


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_failure_elsewhere_is_no_success(machines, restarts):
    program = "print(attempt, flush=True); sys.exit(3 if rank and not attempt else 0)"
    options = f"--max-restarts={restarts}"
    first, other = (machines(program, rank, options) for rank in range(2))
    ends = [end(process) for process in (first, other)]
    assert [code for code, _, _ in ends] == [3 * (not restarts)] * 2, ends
    assert [len(lines) for _, lines, _ in ends] == [1 + restarts] * 2


def test_wrong_arguments_elsewhere_end_all(machines):
    first, other = (machines("sys.exit(2 if rank else 1)", rank) for rank in range(2))
    assert [end(process)[0] for process in (first, other)] == [2, 2]


def test_a_launcher_that_is_started_again_at_once_has_lost_its_workers(machines, tmp_path):
    first, other = both_begun(machines, TWO)
    other.kill()
    other.communicate()
    again = machines(TWO, 1)
    assert again.stderr.readline().startswith("kdist launch: waits for the launcher")
    (tmp_path / "lost").touch()
    for rank, process in enumerate((first, again)):
        code, lines, errors = end(process)
        assert (code, lines) == (0, [f"[{rank}] 1 2 ['127.0.0.1', '127.0.0.2']"]), errors


def test_without_the_first_machine_the_others_end(machines):
    """Also those whose workers run, and one that waits for the start."""
    program = "print(attempt, flush=True); signal.pause()"
    first, other = both_begun(machines, program)
    first.kill()
    code, _, errors = end(other)
    assert code == 143, errors
    with socket.create_server(("", machines.port)) as nobody:
        waits = machines(program, 1)
        nobody.accept()[0].close()
        code, _, errors = end(waits)
    assert code == 75
    assert "has ended, or speaks to another launcher" in errors


def test_what_is_no_launcher_is_ignored(machines, launch):
    """Nor does it take the place of one."""
    first = machines("print(size)", 0)
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", machines.port), timeout=SECONDS)
            break
        except ConnectionRefusedError:
            os.sched_yield()
    for line in (
        b'{"machine": 1}',
        b'{"machine": [1], "workers": 1, "lost": 0, "code": 0}',
        b'{"machine": 1, "workers": 1000000000, "lost": 0, "code": 0}',
        b"[" * 9999,
        b"GET / HTTP/1.1",
    ):
        connection.sendall(line + b"\n")
        assert connection.recv(1) == b""
        connection.close()
        connection = socket.create_connection(("127.0.0.1", machines.port), timeout=SECONDS)
    other = machines("print(size)", 1)
    for rank, process in enumerate((first, other)):
        assert end(process)[:2] == (0, [f"[{rank}] 2"])
    connection.close()


def test_a_machine_that_does_not_come_is_named(machines):
    code, _, errors = end(machines("", 0, "--start-timeout=1"))
    assert code == 2
    assert "launchers of 127.0.0.2 have not come within 1 seconds" in errors
    code, _, errors = end(machines("", 1, "--start-timeout=1"))
    assert code == 2
    assert "cannot reach the launcher of 127.0.0.1 at port" in errors
