import io
import subprocess
import sys

import pytest
from fake_runs import MACHINE, FakeRuns, run, throughput
from kdist.errors import UserError
from kdist.study.sweep_run import sweep
from rich.console import Console

SECOND = throughput().points()[1].name


def explode(*args, **options):
    raise AssertionError("nothing is to be run, and no device to be listed")


def test_a_finished_sweep_is_shown_without_tensorflow(here, runs):
    """Its devices are not listed, no scipy imported, its rows not summed up, no chart drawn."""
    runs.at[SECOND] = {"status": "failed", "error": "ValueError: no"}
    _, first = run(runs, output="out")
    before = {path: path.stat().st_mtime_ns for path in (here / "out").rglob("*")}

    def listed(devices=None):
        return MACHINE if devices == MACHINE["devices"] else explode()

    out = io.StringIO()
    console = Console(file=out, width=200)
    options = {"run_point": explode, "machine": listed, "console": console}
    assert sweep(lambda about: throughput(), output="out", **options) == 0
    shown = out.getvalue()
    begin, end = "┏", "Chart: out/throughput.png\n"
    assert (
        shown[shown.index(begin) : shown.index(end)]
        == (first[first.index(begin) : first.index(end)])
    )
    assert shown.endswith("The sweep in out is finished: to run it again, pass another --output\n")
    after = {path: path.stat().st_mtime_ns for path in (here / "out").rglob("*")}
    assert after == before
    with pytest.raises(AssertionError, match="nothing is to be run"):
        sweep(throughput(), output="out", retry_failed=True, **options)


def test_the_results_of_a_sweep_are_shown_without_its_libraries():
    heavy = {"tensorflow", "keras", "scipy", "altair"}
    code = f"import kdist.study.sweep_run, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("made", [True, False])
def test_a_sweep_says_what_it_does_before_it_lists_the_devices(here, made):
    out = io.StringIO()
    console = Console(file=out, width=200)

    def listed(devices=None):
        assert made == ("Sweep" not in out.getvalue())
        return MACHINE

    experiment = (lambda about: throughput()) if made else throughput()
    sweep(experiment, run_point=FakeRuns(), machine=listed, console=console)
    assert (
        "Sweep throughput: 8 runs (batch_sizes 8,16; replicas 1,2; epochs 3; rounds 2)\n"
    ) in out.getvalue()


def test_a_batch_larger_than_the_data_is_refused_before_the_devices_are_listed(here):
    words = "10,000 training images do not fill a global batch of 16,000"
    with pytest.raises(UserError, match=words):
        sweep(
            throughput(train={"dataset": "sample"}, batch_sizes=[8, 8000]),
            machine=explode,
        )


def test_what_no_run_would_take_is_refused_before_the_devices_are_listed(here):
    with pytest.raises(UserError, match="depth has to be 6n"):
        sweep(throughput(train={"depth": 12}), machine=explode)
