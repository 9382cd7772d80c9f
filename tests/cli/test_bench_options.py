import kdist.cli
import pytest
from kdist.bench.prediction import Prediction
from kdist.performance.links import LINKS
from kdist.training.fields import fields_of


@pytest.fixture
def asked(monkeypatch, capsys):
    """What `kdist bench` was asked to run, which is not done; or exit code and error."""
    seen = []
    for name in ("bench", "show", "predict"):
        monkeypatch.setattr(
            f"kdist.bench.run.{name}",
            lambda *values, name=name, **options: seen.append((name, values, options)) or [],
        )

    def run(line):
        monkeypatch.setattr("sys.argv", ["kdist", "bench", *line.split()])
        with pytest.raises(SystemExit) as end:
            kdist.cli.main()
        return seen[-1] if not end.value.code else (end.value.code, capsys.readouterr().err)

    return run


def test_the_links_are_those_with_figures():
    (link,) = [field for field in fields_of(Prediction) if field.name == "link"]
    assert set(link.choices) == set(LINKS)


def test_without_options_every_benchmark(asked):
    assert asked("") == ("bench", (), {"quick": False, "rounds": None, "output": None})
    options = {"quick": True, "rounds": 2, "output": "a.json"}
    assert asked("--quick --rounds 2 --output a.json") == ("bench", (), options)
    assert asked("--show a.json") == ("show", ("a.json",), {})


def test_a_users_model(asked):
    model = "examples/my_model.py:build"
    name, _, options = asked(f"{model} --batch-size 64 --steps 3 --replicas 4 --rounds 2")
    candidate = options["own"].candidates[-1]
    assert (name, options["rounds"]) == ("bench", 2)
    chosen = {"model": model, "data": "data", "batch": 64, "steps": 3, "replicas": 4}
    assert candidate.settings == chosen


def test_a_prediction(asked):
    name, (replicas, link), options = asked("--predict 8,64")
    assert (name, replicas, link) == ("predict", (8, 64), LINKS["nvlink"])
    defaults = {"depth": 16, "width": 1, "batch": 128, "overlap": 0.0, "scaling": "weak"}
    assert options == defaults
    line = (
        "--predict 8 --link ethernet --latency-us 5 --bandwidth-gb 2 --overlap 1 --scaling strong"
    )
    _, (_, link), options = asked(f"{line} --depth 10 --width 2 --batch-size 4")
    assert (link.latency_seconds, link.bytes_per_second) == (pytest.approx(5e-6), 2e9)
    assert options == {"depth": 10, "width": 2, "batch": 4, "overlap": 1.0, "scaling": "strong"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--link pcie", "received --link, which does nothing without --predict REPLICAS: add that"),
        ("--overlap 0.5 --width 2", "received --overlap, --width, which does nothing without"),
        ("--steps 3 --data a", "received --data, --steps, which does nothing without your own"),
        ("examples/my_model.py:build --quick", "compared alone: remove --show, --predict or"),
        ("examples/my_model.py:build --depth 10", "received --depth, which does nothing with your"),
        ("examples/my_model.py:build --replicas 1", "replicas"),
        ("--latency-us 0", "received --latency-us, which does nothing without --predict"),
        ("--predict 8 --quick", "received --quick, which does nothing with --predict: remove it"),
        ("--predict 8 --output a", "received --output, which does nothing with --predict"),
        ("--show a --rounds 2", "received --rounds, which does nothing with --show: remove it"),
        ("--show a --predict 8", "received --predict, which does nothing with --show"),
        ("--show a --depth 16", "received --depth, which does nothing with --show"),
        ("--predict 8 --latency-us -1", "latency_us has to be at least 0 and finite, received -1"),
        ("--predict 8 --latency-us nan", "latency_us has to be at least 0 and finite, received na"),
        ("--predict 8 --bandwidth-gb 0", "bandwidth_gb has to be above 0 and finite, received 0"),
        ("--predict 8 --overlap 1.5", "overlap has to be from 0 to 1, received 1.5"),
        ("--predict 8 --depth 12", "depth has to be 6n + 4"),
        ("--predict 8 --width 1000", "width has to be from 1 to 200, received 1000"),
        ("--predict 8 --link x", 'Invalid value "x" for --link'),
        ("--predict a", "'a' contains 'a', but numbers of replicas have to be integers"),
        ("--rounds 1000000000", "Must be <= 1000"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(asked, line, words):
    code, error = asked(line)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1
