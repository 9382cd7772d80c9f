import dataclasses
import json
import os

import pytest
from kdist.bench import benchmarks as benchmarks_module
from kdist.bench import results
from kdist.bench import run as bench_run
from kdist.bench.benchmark import Benchmark, Comparison
from kdist.bench.benchmarks import MATMUL, batch_sweep, inputs, tiny, training
from kdist.bench.driver import Outcome
from kdist.bench.network_benchmarks import first_steps, inference_benchmarks, network_benchmarks
from kdist.errors import UserError


def outcome(*seconds, images=100, **values):
    return Outcome(facts={"images": images}, seconds=list(seconds), **values)


def test_a_ratio_is_taken_round_by_round():
    outcomes = {"a": outcome(1, 2, 4), "b": outcome(2, 2, 2)}
    one = results.ratio(Comparison(name="a", bases=("b",), goal=1.5), outcomes)
    assert (one.median, one.least, one.most, one.goal) == (1, 0.5, 2, 1.5)


def test_turns_of_another_size_count_by_their_images():
    outcomes = {"a": outcome(1, images=200), "b": outcome(1, images=100)}
    assert results.ratio(Comparison(name="a", bases=("b",)), outcomes).median == 2


def test_the_fastest_base_counts():
    outcomes = {"a": outcome(1), "b": outcome(4), "c": outcome(2), "d": Outcome(skipped="no")}
    one = results.ratio(Comparison(name="a", bases=("b", "c", "d")), outcomes)
    assert (one.base, one.median) == ("c", 2)


def test_memory_and_seconds_are_better_if_smaller():
    outcomes = {"a": outcome(3, 1, peak_mib=90), "b": outcome(2, 2, peak_mib=100)}
    memory = results.ratio(Comparison(name="a", bases=("b",), of="memory"), outcomes)
    assert (memory.median, memory.least, memory.most) == (0.9, 0.9, 0.9)
    seconds = results.ratio(Comparison(name="a", bases=("b",), of="seconds"), outcomes)
    assert (seconds.median, seconds.least, seconds.most) == (1, 0.5, 1.5)
    outcomes["a"].peak_mib = None  # not Linux
    assert results.ratio(Comparison(name="a", bases=("b",), of="memory"), outcomes) is None


@pytest.mark.parametrize("missing", ["a", "b"])
def test_no_ratio_without_both(missing):
    outcomes = {"a": outcome(1), "b": outcome(1), missing: Outcome(skipped="no library")}
    assert results.ratio(Comparison(name="a", bases=("b",)), outcomes) is None


@pytest.fixture
def benchmarks():
    benchmark = Benchmark(
        title="a comparison",
        candidates=[],
        comparisons=[Comparison(name="a", bases=("b",), goal=3)],
    )
    outcomes = {
        "a": Outcome(facts={"images": 100, "flops_per_image": 4e6}, seconds=[0.5], peak_mib=812.4),
        "b": outcome(1.0),
        "c": Outcome(skipped="no library"),
        MATMUL: Outcome(facts={"operations": 4e9}, seconds=[2.0]),
    }
    return [results.as_json(benchmark, outcomes)]


TABLE = """**a comparison**

| | per second | utilization | memory, MiB |
| --- | --- | --- | --- |
| a | 200 images | 40% | 812 |
| b | 100 images | 20% |  |
| c | skipped: no library | | |
| matrix product | 2 GFLOP |  |  |

| ratio, median (min to max) | | goal |
| --- | --- | --- |
| speed, a : b | 2.00 (2.00 to 2.00) | ≥ 3 |"""


def test_the_table(benchmarks):
    assert results.table(benchmarks) == TABLE


def test_the_table_of_seconds():
    benchmark = Benchmark(
        title="the first step",
        candidates=[],
        comparisons=[
            Comparison(name="a", bases=("b",), goal=0.7, of="seconds"),
            Comparison(name="a", bases=("b",), of="memory"),
        ],
        measured="start",
    )
    outcomes = {
        "a": outcome(4, 6, peak_mib=300),
        "b": outcome(10, 12, peak_mib=400),
        "c": Outcome(skipped="no library"),
    }
    assert results.table([results.as_json(benchmark, outcomes)]).splitlines() == [
        "**the first step**",
        "",
        "| | seconds | | memory, MiB |",
        "| --- | --- | --- | --- |",
        "| a | 5.0 |  | 300 |",
        "| b | 11.0 |  | 400 |",
        "| c | skipped: no library | | |",
        "",
        "| ratio, median (min to max) | | goal |",
        "| --- | --- | --- |",
        "| seconds, a : b | 0.45 (0.40 to 0.50) | ≤ 0.7 |",
        "| memory, a : b | 0.75 |  |",
    ]


def test_a_file_written_before_there_were_quantities_is_shown():
    with_speeds_only = {
        "title": "old",
        "outcomes": {"a": dataclasses.asdict(outcome(1))},
        "ratios": [{"name": "a", "base": "a", "median": 1, "least": 1, "most": 1, "goal": None}],
    }
    assert results.table([with_speeds_only]).endswith("| speed, a : a | 1.00 (1.00 to 1.00) |  |")


def test_a_written_file_shows_the_same_table(benchmarks, tmp_path):
    path = tmp_path / "new" / "bench.json"
    results.write(path, benchmarks, {"quick": True})
    assert bench_run.show(str(path)) == TABLE
    content = json.loads(path.read_text())
    assert content["machine"]["cores"] >= 1
    assert content["machine"]["date"].count("-") == 2
    assert content["settings"] == {"quick": True}
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a file of kdist bench"),
        ("{", "not a file of kdist bench"),
        ("[]", "not a file of kdist bench"),
        ("[" * 5000, "not a file of kdist bench .*nested more than"),
        ('{"benchmarks": []}', "not a file of kdist bench"),
        (
            '{"format": 99, "benchmarks": []}',
            "has format 99, this kdist reads 1: run kdist bench again",
        ),
        ('{"format": 1}', "not a file of kdist bench"),
        ('{"format": 1, "benchmarks": [3]}', "not a file of kdist bench"),
        (
            '{"format": 1, "benchmarks": [{"title": "x", "outcomes": []}]}',
            "not a file of kdist bench",
        ),
    ],
)
def test_a_foreign_file_is_refused(text, words, tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"bench\.json (is )?{words}"):
        bench_run.show(str(path))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"missing\.json .*\(No such file or directory\)"):
        bench_run.show(str(tmp_path / "missing.json"))


def test_an_empty_path_is_refused():
    for call in (bench_run.show, lambda path: bench_run.bench(output=path)):
        with pytest.raises(UserError, match="has to be a path, received an empty one"):
            call("")


def test_a_pipe_is_not_written_and_not_removed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is not a regular file; pass another --output"):
        bench_run.bench(output=str(tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("text", ["# My thesis\n", "[]", '{"format": 1}'])
def test_a_file_of_something_else_is_not_replaced(tmp_path, monkeypatch, text):
    monkeypatch.setattr(bench_run, "run_benchmark", None)
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is not a file of kdist bench: pass another --output"):
        bench_run.bench(output=str(path))
    assert path.read_text() == text


def test_nothing_runs_where_nothing_can_be_written(monkeypatch):
    monkeypatch.setattr(bench_run, "run_benchmark", None)
    with pytest.raises(UserError, match="pass another --output"):
        bench_run.bench(output="/proc/version/bench.json")


def test_comparisons_are_among_those_who_run():
    for benchmark in (
        training(16, 1, 128, 4),
        training(16, 4, 128, 1),
        training(10, 1, 64, 2, quick=True),
        tiny(),
        inputs(),
        *network_benchmarks(),
        *inference_benchmarks(),
        *first_steps(),
    ):
        names = {candidate.name for candidate in benchmark.candidates}
        assert all({one.name, one.bases[0]} <= names for one in benchmark.comparisons)
        assert len(names) == len(benchmark.candidates)


@pytest.mark.parametrize("on", [False, True])
def test_stock_with_onednn_runs_where_it_is_off_by_default(monkeypatch, on):
    monkeypatch.setattr(benchmarks_module, "is_on_by_default", lambda: on)
    names = [candidate.name for candidate in training(16, 1, 128, 4).candidates]
    assert any(name.endswith("with oneDNN") for name in names) is not on


def test_the_sweep_has_the_labs_batches():
    benchmarks = batch_sweep(["stock Keras"], 16, 1)
    assert [benchmark.candidates[0].settings["batch"] for benchmark in benchmarks] == [
        *(8, 16, 32, 64, 128, 256, 512, 700)
    ]
    assert {len(benchmark.candidates) for benchmark in benchmarks} == {1}


def test_the_quick_run_and_what_it_writes(monkeypatch, tmp_path):
    """Which benchmarks are run, in order; whatever was compared is on disk after each."""
    seen, sizes = [], []
    path = tmp_path / "bench.json"

    def run_benchmark(benchmark, *, rounds, announce):
        sizes.append(len(json.loads(path.read_text())["benchmarks"]) if path.exists() else 0)
        seen.append((benchmark.title, rounds))
        return {candidate.name: outcome(1.0) for candidate in benchmark.candidates}

    monkeypatch.setattr(bench_run, "run_benchmark", run_benchmark)
    text = bench_run.bench(quick=True, output=str(path), announce=lambda line: None)
    assert [title for title, _ in seen] == [
        "two dense layers, batch 32",
        "augmented images, batch 128",
        "WRN-16-1, global batch 128",
    ]
    assert {rounds for _, rounds in seen} == {3}
    assert sizes == [0, 1, 2]
    assert text == bench_run.show(str(path))
    bench_run.bench(quick=True, output=str(path), announce=lambda line: None)  # replaces it
    assert text == bench_run.show(str(path))


def test_a_prediction_takes_what_was_measured(monkeypatch):
    facts = {"steps": 4, "gradient_bytes": 1e6, "batch_norms": 13, "images": 512}
    measured = Outcome(facts=facts, seconds=[2.0, 2.4, 2.2])
    monkeypatch.setattr(
        bench_run, "run_benchmark", lambda benchmark, **_: {bench_run.ONE: measured}
    )
    link = dataclasses.replace(bench_run.Link(name="x", latency_seconds=0.0, bytes_per_second=1e6))
    (step,) = bench_run.predict([2], link, announce=lambda line: None)
    assert step.compute_seconds == pytest.approx(0.55)  # the median of three, of four steps
    assert step.seconds == pytest.approx(0.55 + 1.0)  # 2 (N - 1) / N of a second's bytes
