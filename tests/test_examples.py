import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_fashion_mnist():
    done = run("fashion_mnist.py", "--epochs", "1", "--subset", "128", "--replicas", "2")
    assert done.returncode == 0, done.stderr
    for line in ("Images/sec: ", "Cumulative training time after epoch 1: ", "val_accuracy: "):
        assert line in done.stdout


def test_every_example_is_run_here():
    source = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'run("{path.name}"' in source
