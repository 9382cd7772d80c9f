"""What the candidates do; in this process, so one of each kind is enough."""

import ast
import importlib.util
import sys

import keras
import numpy as np
import pytest
from kdist.bench import input_pipelines
from kdist.bench.networks import NETWORKS
from kdist.bench.workload import Unavailable
from kdist.bench.workloads import WORKLOADS
from kdist.models import WideResNet


@pytest.mark.parametrize(
    ("depth", "width", "batch_norms", "gradient_bytes"),
    # By hand: stem 160, blocks 4,640, 14,432 and 57,536, classifier 650; batch norms 480.
    [(10, 1, 7, 4 * 77_898)],
)
def test_the_network_tells_what_it_sends(depth, width, batch_norms, gradient_bytes):
    workload = WORKLOADS["keras"](depth=depth, width=width, batch=2, steps=1)
    assert workload.facts["batch_norms"] == batch_norms
    assert workload.facts["gradient_bytes"] == gradient_bytes
    assert workload.facts["images"] == 2


def test_kdist_trains_the_same_network(monkeypatch):
    workload = WORKLOADS["kdist"](depth=10, width=1, batch=4, steps=2)
    assert workload.work() > 0
    assert workload.facts["images"] == 8


def test_without_batch_norm_nothing_else_is_missing():
    workload = WORKLOADS["kdist"](depth=10, width=1, batch=2, steps=1, batch_norm=False)
    assert workload.facts["batch_norms"] == 0
    model = WideResNet(10, 1, input_shape=(28, 28, 1), classes=10)
    norms = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization)]
    affine = sum(int(np.prod(w.shape)) for layer in norms for w in layer.trainable_weights)
    assert workload.facts["gradient_bytes"] == 4 * (77_898 - affine)


@pytest.mark.parametrize("name", NETWORKS)
def test_other_networks_are_the_same_in_stock_keras_and_kdist(name):
    """The network of a candidate trains, and has as many weights whoever makes it."""
    network = NETWORKS[name]
    x, y = network.data(6)
    again, _ = network.data(6)
    assert np.array_equal(x, again)
    assert len(x) == len(y) == 6
    assert network.make().output_shape == (None, 10)
    if name not in ("lstm", "table"):  # the others take long to trace
        return
    for kind in ("stock_network", "kdist_network"):
        workload = WORKLOADS[kind](network=name, batch=3, steps=2)
        assert workload.work() > 0
        assert workload.facts["samples"] == 6


@pytest.mark.parametrize("task", ["evaluate", "predict"])
def test_inference_is_timed(task):
    workload = WORKLOADS["kdist_network"](network="table", batch=3, steps=2, task=task)
    assert workload.work() > 0


def test_torch_has_the_same_network():
    torch_training = pytest.importorskip("kdist.bench.torch_training", exc_type=ImportError)
    for depth, width in ((10, 1), (16, 2)):
        model = torch_training.wide_resnet(depth, width)
        ours = WideResNet(depth, width, input_shape=(28, 28, 1), classes=10)
        weights = sum(parameter.numel() for parameter in model.parameters())
        assert weights == sum(int(np.prod(w.shape)) for w in ours.trainable_weights)


def test_a_missing_library_is_no_failure(monkeypatch):
    for library in ("torch", "jax"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unavailable, match="PyTorch is not installed: pip install"):
        WORKLOADS["torch"](depth=10, width=1, batch=2, steps=1)
    with pytest.raises(Unavailable, match="JAX is not installed: pip install"):
        WORKLOADS["keras_on_jax"](depth=10, width=1, batch=2, steps=1)


class _Source:
    """The functions of a file that is not imported: its library may be missing here."""

    def __init__(self, name, package=None):
        path = importlib.util.find_spec(package or "kdist.bench").submodule_search_locations[0]
        self.path = f"{path}/{name.removeprefix('.')}.py"

    def __getattr__(self, name):
        with open(self.path) as file:
            found = [one.name for one in ast.parse(file.read()).body if hasattr(one, "name")]
        return lambda: name in found


def test_every_workload_is_there(monkeypatch):
    """No linter checks the names of files and functions in the table."""
    monkeypatch.setattr(importlib, "import_module", _Source)
    assert {name: make() for name, make in WORKLOADS.items()} == dict.fromkeys(WORKLOADS, True)


def test_the_matrix_product_is_counted():
    workload = WORKLOADS["matmul"]()
    assert workload.facts["operations"] == 4 * 2 * 2048**3


def test_every_input_pipeline_gives_every_image():
    for make in (input_pipelines.kdist_data, input_pipelines.py_dataset):
        workload = make(batch=16, images=40)
        assert workload.work() > 0


def test_a_pipeline_that_loses_images_is_an_error():
    workload = input_pipelines._reading([(np.zeros((3, 2, 2, 1)), None)], 4)
    with pytest.raises(RuntimeError, match="3 of 4"):
        workload.work()
