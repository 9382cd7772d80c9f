"""`kdist launch` with small programs: what is printed, who failed, that nobody is left."""

import io
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from kdist.processes.child import Resources
from kdist.processes.device_assignment import visible_cores
from kdist.workers import worker_processes
from kdist.workers.worker_processes import Worker, WorkerOutput, run_workers

SECONDS = 900  # no test takes as long


class Launch:
    """`kdist launch` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, program: str, *options: str, arguments: tuple[str, ...] = ()):
        script = self.folder / "program.py"
        head = """
            import os, signal, subprocess, sys, time
            rank, attempt = (int(os.environ[n]) for n in ("KDIST_RANK", "KDIST_RESTART_COUNT"))
        """
        script.write_text(textwrap.dedent(head) + textwrap.dedent(program))
        return subprocess.Popen(
            [sys.executable, "-m", "kdist", "launch", *options, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            text=True,
        )

    def run(self, program: str, *options: str, arguments: tuple[str, ...] = ()):
        process = self.start(program, *options, arguments=arguments)
        output, errors = process.communicate(timeout=SECONDS)
        return process.returncode, output.splitlines(), errors


@pytest.fixture
def launch(tmp_path):
    return Launch(tmp_path)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_lines_have_the_rank_in_front_and_arguments_reach_the_program(launch):
    code, lines, errors = launch.run(
        "print(sys.argv[1:], os.environ['KDIST_WORLD_SIZE']); print('e', file=sys.stderr)",
        "--workers",
        "2",
        "--log-dir",
        "logs",
        arguments=("--workers", "3", "-m", "--help"),
    )
    given = "['--workers', '3', '-m', '--help'] 2"
    assert (code, sorted(lines)) == (0, [f"[0] {given}", f"[1] {given}"])
    assert sorted(errors.splitlines()) == ["[0] e", "[1] e"]
    for rank in range(2):
        log = (launch.folder / "logs" / f"worker-{rank}.log").read_text()
        assert sorted(log.splitlines()) == sorted([given, "e"])


def test_a_single_worker_prints_as_without_a_launcher(launch):
    code, lines, _ = launch.run("print('whole'); sys.stdout.write('no end of line')")
    assert (code, lines) == (0, ["whole", "no end of line"])


def test_a_module_is_run_from_the_folder(launch):
    (launch.folder / "mine.py").write_text("import sys; print(sys.argv[1:])")
    done = subprocess.run(
        [sys.executable, "-m", "kdist", "launch", "-m", "mine", "--port", "1"],
        capture_output=True,
        text=True,
        cwd=launch.folder,
        timeout=SECONDS,
    )
    assert done.stdout == "['--port', '1']\n", done.stderr


def test_the_first_error_comes_last_with_its_traceback(launch):
    # Worker 0 loses its connection and ends before worker 1, whose error was the cause.
    code, _, errors = launch.run(
        """
        if rank:
            try:
                {}["key"]
            except KeyError as error:
                import traceback
                try:
                    raise ValueError("the cause") from error
                except ValueError:
                    traceback.print_exc()
            open("failed", "w").close()
            signal.pause()
        while not os.path.exists("failed"):
            pass
        raise ConnectionResetError("connection lost")
        """,
        "--workers",
        "2",
    )
    assert code in (1, 143)
    last = errors.split("kdist launch: the first error, of worker ")[1]
    assert last.startswith("1:\nTraceback")
    assert "KeyError: 'key'" in last
    assert "ValueError: the cause" in last
    assert "connection lost" not in last
    assert last.splitlines()[-1].startswith("kdist launch: worker 1 ")


def test_a_killed_worker_ends_the_others(launch):
    code, _, errors = launch.run(
        """
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        """,
        "--workers",
        "3",
    )
    assert code == 128 + signal.SIGKILL
    assert "kdist launch: worker 1 was killed by SIGKILL (out of memory, most likely), " in errors


def test_restarts_have_other_ports_and_count(launch):
    code, lines, errors = launch.run(
        """
        print(f"{attempt} {os.environ['TF_CONFIG']}")  # whole: the end of worker 0 ends worker 1
        sys.exit(7 if attempt < 2 and rank == 0 else 0)
        """,
        "--workers",
        "2",
        "--max-restarts",
        "3",
    )
    assert code == 0
    ports = {line.split(" ", 2)[2].split('"task"')[0] for line in lines}
    assert len(ports) == 3
    assert "worker 0 ended with exit code 7" in errors
    assert "restart 2 of 3" in errors
    assert "restart 3 of 3" not in errors


def started(code, kind=Worker):
    command = [sys.executable, "-c", code]
    resources = Resources(gpus=None, cores=tuple(visible_cores()))
    return kind(command, rank=0, environment={}, resources=resources, prefix="", log=None)


def test_a_worker_that_was_killed_is_lost_also_if_that_is_seen_after_the_end_of_another(
    monkeypatch,
):
    was_killed, others_end = threading.Event(), threading.Event()

    class Late(Worker):
        def wait(self):
            self._child.wait()
            was_killed.set()
            others_end.wait(SECONDS)
            super().wait()

    class Later(Worker):
        def wait(self):
            was_killed.wait(SECONDS)
            super().wait()

    end_others = worker_processes._RunningWorkers._end_others
    monkeypatch.setattr(
        worker_processes._RunningWorkers,
        "_end_others",
        lambda *args: end_others(*args) or others_end.set(),
    )
    killed = "import os; os.kill(os.getpid(), 9)"
    starts = [lambda: started(killed, Late), lambda: started("raise SystemExit(75)", Later)]
    outcome = run_workers(starts, grace=SECONDS, events=queue.SimpleQueue())
    assert (outcome.code, outcome.lost) == (137, (0,))


def test_the_end_of_a_worker_of_the_attempt_before_ends_nobody(tmp_path):
    before = started("raise SystemExit(3)")
    before.wait()
    before.kill()
    events = queue.SimpleQueue()
    events.put(before)
    file = tmp_path / "ended"
    starts = [lambda: started(f"open({str(file)!r}, 'w').close()")]
    assert run_workers(starts, grace=SECONDS, events=events).code == 0
    assert file.exists()


def test_the_exit_code_is_that_of_the_last_attempt(launch):
    code, lines, errors = launch.run("print(attempt); sys.exit(5)", "--max-restarts", "1")
    assert (code, lines) == (5, ["0", "1"])
    code, lines, _ = launch.run("print(attempt); sys.exit(2)", "--max-restarts", "1")
    assert (code, lines) == (2, ["0"])  # a usage error would come again


def test_a_signal_is_passed_on_and_what_ignores_it_is_killed(launch):
    process = launch.start(
        """
        children = [subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])]
        signal.signal(signal.SIGTERM, signal.SIG_IGN if rank else lambda *_: sys.exit(143))
        signal.signal(signal.SIGUSR1, lambda *_: print("told", flush=True))
        print("ready", os.getpid(), children[0].pid, flush=True)
        while True:
            signal.pause()
        """,
        "--workers",
        "2",
        "--grace",
        "5",
        "--max-restarts",
        "3",
    )
    assert process.stdout is not None
    ready = [process.stdout.readline().split() for _ in range(2)]
    pids = [int(pid) for line in ready for pid in line[2:]]
    assert all(is_running(pid) for pid in pids)
    process.send_signal(signal.SIGUSR1)
    told = {process.stdout.readline() for _ in range(2)}
    assert told == {"[0] told\n", "[1] told\n"}
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert "worker 0 ended with exit code 143 after SIGTERM" in errors
    assert "restart" not in errors
    while any(is_running(pid) for pid in pids):  # until the kernel has removed them
        os.sched_yield()


def test_a_second_signal_kills_the_workers(launch):
    process = launch.start(
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            signal.pause()
        """,
        "--grace",
        "999",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == (
        "kdist launch: received SIGINT: the workers may finish and save for up to 999 s (--grace);"
        " a second signal kills them\n"
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGKILL


def test_nothing_outlives_its_worker_also_in_a_session_of_its_own(launch):
    code, lines, _ = launch.run(
        """
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        print(subprocess.Popen(command, start_new_session=True, **streams).pid)
        """,
        "--workers",
        "2",
    )
    assert code == 0
    pids = [int(line.split()[1]) for line in lines]
    assert len(pids) == 2
    for pid in pids:
        while is_running(pid):
            os.sched_yield()


def test_no_worker_outlives_a_killed_launcher(launch):
    process = launch.start(
        "print('ready', os.getpid(), flush=True); signal.pause()", "--workers", "2"
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split()[2]) for _ in range(2)]
    process.kill()
    # The streams end when the last process that holds them has ended.
    process.communicate(timeout=SECONDS)
    for pid in pids:
        while is_running(pid):
            os.sched_yield()


def test_output_that_nobody_reads_ends_the_workers(launch):
    process = launch.start("while True: print('line' * 1000)", "--workers", "2", "--grace", "0.5")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=SECONDS)
    assert process.returncode


def test_the_launcher_does_not_import_tensorflow(launch):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['kdist', 'launch', 'no.py']\n"
            "from kdist.cli import main\n"
            "try: main()\n"
            "except SystemExit as error: print(error.code, 'tensorflow' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        cwd=launch.folder,
        timeout=SECONDS,
    )
    assert done.stdout == "2 False\n"
    assert "cannot find the script 'no.py'" in done.stderr


def test_a_worker_that_stands_still_is_killed_and_named(launch):
    code, _, errors = launch.run(
        """
        if rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        while open("/proc/%s/stat" % open("1").read() if os.path.exists("1") else "/dev/null"
                   ).read().rpartition(")")[2][1:2] != "T":
            pass
        raise ConnectionResetError("connection lost")
        """.replace(
            "if rank:",
            "if rank:\n            open('new', 'w').write(str(os.getpid())); os.rename('new', '1')",
        ),
        "--workers",
        "2",
    )
    assert code == 128 + signal.SIGKILL
    assert "kdist launch: worker 1 was stopped by a signal, and then killed" in errors


HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "/home/me/heartbeat.py", line 3, in <module>\n    fit()\n'
LOG = """E0000 00:00:1795500782.608496   31609 base_collective.cc:252] StartAbort UNAVAILABLE
Additional GRPC error information from remote target /job:worker/replica:0/task:0
:UNKNOWN:Error received from peer  {grpc_status:14}
"""


def output(text, capsys):
    found = WorkerOutput(None, io.BytesIO(text.encode()), prefix=b"", log=None)
    found.join(10)
    capsys.readouterr()
    return found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{HEAD}{FRAME}ValueError: mine\n{LOG}", f"{HEAD}{FRAME}ValueError: mine"),
        (LOG, LOG.strip()),  # without a traceback, it may be the cause
        (f"{HEAD}{FRAME}kdist.errors.UserError: mine\n{LOG}", "kdist.errors.UserError: mine"),
    ],
)
def test_the_last_error_is_without_what_tensorflow_logs_behind(text, error, capsys):
    assert output(text, capsys).last_error() == error


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        ("ValueError: mine", False),
        ("UnavailableError: Socket closed", True),
        ("tensorflow.python.framework.errors_impl.AbortedError: it", True),
        ("RuntimeError: a task has missed its heartbeats", True),
    ],
)
def test_the_name_of_a_file_is_no_lost_connection(error, is_lost, capsys):
    assert output(f"{HEAD}{FRAME}{error}\n", capsys).lost_connection() == is_lost


def test_a_traceback_that_the_program_went_on_behind_is_not_its_end(capsys):
    found = output(f"{HEAD}{FRAME}ValueError: handled\nmore\n", capsys)
    ended = Worker.__new__(Worker)
    ended.output, ended.ended_at = found, time.monotonic()
    assert ended.failed_at == found.failed_at
    assert ended.last_error().startswith("Traceback")
    ended.ended_at += worker_processes._LONGEST_END_SECONDS
    assert ended.failed_at is None
    assert ended.last_error().endswith("more")
