"""The command, on the example; wrong arguments before TensorFlow is imported."""

import json
import subprocess
import sys
from pathlib import Path

from kdist.cli.find import app
from kdist.tools.find import batch_size
from kdist.tools.find.batch_size import BatchSize

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_cnn.py"
MODEL = f"{EXAMPLE}:build"


def find(*arguments):
    return app(arguments, exit_on_error=False, print_error=False, result_action="return_value")


def test_rate_of_the_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    find("rate", MODEL, "--steps=12", "--batch-size=8", "--replicas=2", "--output=found")
    assert "suggested learning rate: " in capsys.readouterr().out
    assert "<svg" in (tmp_path / "found" / "learning-rate.html").read_text()


def test_batch_passes_its_options(monkeypatch, capsys):
    asked = {}

    def found(model, data, **options):
        asked.update(options, model=model, data=data)
        return BatchSize(batch_size=95, largest=100, limit="memory", tries=())

    monkeypatch.setattr(batch_size, "find_batch_size", found)
    find("batch", MODEL, "--start=8", "--replicas=2", "--shard-optimizer", "--shard-weights")
    del asked["announce"]
    assert asked == {
        "model": MODEL,
        "data": "data",
        "replicas": 2,
        "shard_optimizer": True,
        "shard_weights": True,
        "start": 8,
        "most": 65536,
    }
    assert capsys.readouterr().out.splitlines() == [
        "largest batch size per replica that works: 100 (the next larger size that was tried did"
        " not fit into memory)",
        "use --batch-size 95",
    ]


WRONG = (
    ["batch", "nothing.py:build"],
    ["batch", "build"],
    ["batch", MODEL, "--replicas=0"],
    ["rate", MODEL, "--steps=3"],
    ["rate", MODEL, "--least=1", "--most=0.1"],
    ["rate", MODEL, "--batch-size=0"],
    ["rate", MODEL, "--data=nothing.py:data"],
)
CHECK = f"""
import sys
from kdist.cli import main
for arguments in {json.dumps(WRONG)}:
    sys.argv = ["kdist", "find", *arguments]
    try:
        main()
    except SystemExit as end:
        print(end.code)
assert "tensorflow" not in sys.modules
"""


def test_wrong_arguments_are_refused_before_tensorflow_is_imported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["2"] * len(WRONG), done.stderr
    assert done.stderr.count("kdist: error: ") == len(WRONG)
    assert list(tmp_path.iterdir()) == []
