"""Upper bounds of the operations of a step on two GPUs: `python -m benchmarks.step_counts`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kdist.models import WideResNet

ROOT = Path(__file__).parent.parent
# Upper bounds on two replicas, for batches of unknown size; lower them with every gain.
BOUNDS = {
    "wrn-16-1": {
        "operations": 2143,
        "launches": 987,
        "collective_sums": 14,
        "device_sums": 0,
        "collective_gathers": 13,
        "device_gathers": 0,
        "copies_to_gpu": 19,
        "copies_to_host": 8,
        "copies_between": 17,
        "exchanges_on_path": 33,
        "launches_on_path": 365,
        "launches_between": 15,
        "passes": 576,
    },
    "transformer": {
        "operations": 1174,
        "launches": 544,
        "collective_sums": 1,
        "device_sums": 0,
        "collective_gathers": 0,
        "device_gathers": 0,
        "copies_to_gpu": 20,
        "copies_to_host": 11,
        "copies_between": 17,
        "exchanges_on_path": 6,
        "launches_on_path": 192,
        "launches_between": 2.5,
        "passes": 588,
    },
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Counts by model: a process of its own, as TensorFlow chooses kernels when it starts."""
    file = tmp_path_factory.mktemp("step counts") / "counts.json"
    command = [sys.executable, "-m", "benchmarks.step_counts", "--models", ",".join(BOUNDS)]
    options = ["--kinds", "kdist", "--replicas", "2", "--unknown-size", "--json", str(file)]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| kdist 2 |") == len(BOUNDS)
    return {model: found["kdist 2"] for model, found in json.loads(file.read_text()).items()}


@pytest.mark.parametrize("model", BOUNDS)
def test_a_step_does_no_more(counts, model):
    found = {
        name: len(value["packs"]) if isinstance(value, dict) else value
        for name, value in counts[model].items()
    }
    assert found.keys() == BOUNDS[model].keys()
    more = {name: value for name, value in found.items() if value > BOUNDS[model][name]}
    assert not more, f"more than {[BOUNDS[model][name] for name in more]}"


def test_collectives_sum_all_gradients(counts):
    model = WideResNet(16, 1, input_shape=(8, 8, 1), classes=10)
    parameters = sum(variable.value.shape.num_elements() for variable in model.trainable_variables)
    sums = counts["wrn-16-1"]["collective_sums"]
    assert 4 * parameters <= sums["bytes"] < 4.05 * parameters
    # Each of 13 batch norms waits for two vectors in its backward pass, which no gradient delays.
    *batch_norms, gradients = sorted(sums["packs"])
    assert batch_norms == [2] * 13
    assert gradients >= len(model.trainable_variables) - 26
    assert counts["wrn-16-1"]["device_sums"] == {"packs": [], "bytes": 0}
