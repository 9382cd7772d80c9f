"""`benchmarks/speed.py`: its candidates run, and its ratios are those of the rounds."""

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kdist.models import WideResNet

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "speed.py"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPT.with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    command = [sys.executable, str(SCRIPT), "--network", "table", "--steps", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_stock_keras_and_kdist_take_turns():
    done = run("--batch", "4", "--rounds", "2", "--candidates", "stock Keras", "kdist")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("**table, fit, batch 4**\n")
    rows = re.findall(r"^\| (.+?) \| [\d,]+ \|  \| [\d,]+ \| \d+\.\d \|$", done.stdout, re.M)
    assert rows == ["stock Keras", "kdist"]
    assert re.search(r"^\| kdist : stock Keras \| \d+\.\d\d \(", done.stdout, re.M)


def test_an_unknown_candidate_is_an_error():
    done = run("--candidates", "nobody")
    assert done.returncode == 2
    assert "--candidates has none of stock Keras, stock MirroredStrategy, kdist," in done.stderr


def test_ratios_are_those_of_a_round():
    speed = loaded("speed")
    said = {
        "stock Keras": [4.0, (2.0, 300), (4.0, 400)],
        "kdist": [3.0, (1.0, 200), (1.0, 200)],
        "matrix product": [1.0, (0.5, 100), (0.5, 100)],
    }
    said = {
        name: [
            {"first": first, "samples": 128, "operations": 1e12},
            *({"seconds": seconds, "peak_mib": mib} for seconds, mib in turns),
        ]
        for name, (first, *turns) in said.items()
    }
    text = speed.table("a title", argparse.Namespace(replicas=2), said)
    assert "| stock Keras | 43 | 17% | 400 | 4.0 |" in text
    assert "| kdist | 128 | 50% | 200 | 3.0 |" in text
    assert "| matrix product | 2,000 GFLOP/s | 100% | 100 | 1.0 |" in text
    assert "| kdist : stock Keras | 3.00 (2.00 to 4.00) | 0.50 | 0.75 |" in text


def test_torch_has_the_same_network():
    pytest.importorskip("torch", exc_type=ImportError)
    for depth, width in ((10, 1), (16, 2)):
        model = loaded("wide_resnet_torch").wide_resnet(depth, width)
        ours = WideResNet(depth, width, input_shape=(28, 28, 1), classes=10)
        weights = sum(parameter.numel() for parameter in model.parameters())
        assert weights == sum(int(np.prod(w.shape)) for w in ours.trainable_weights)
