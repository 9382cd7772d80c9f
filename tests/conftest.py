"""Every test runs on logical devices, which have to exist before TensorFlow starts: CPUs.

With KDIST_TEST_GPU=1 replicas are parts of the first GPU: most tests of `parity` and `spmd` hold.
"""
# ruff: noqa: E402 - TensorFlow is prepared before it is imported

import ctypes
import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("WANDB_MODE", "offline")
# A fifth of what a process takes to import Keras is scikit-learn, which only Bayesian searches use.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [
        os.path.join(os.path.dirname(__file__), "without_scikit_learn"),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
)

import kdist

kdist.prepare_tensorflow()

import hypothesis
import keras
import pytest
import tensorflow as tf
from kdist._upstream.iterators import release_in_background
from kdist.spmd import divided_variables
from replicas import forget_custom_gradients
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

LOGICAL_CPUS = 8

if os.environ.get("KDIST_TEST_GPU") == "1":
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([gpu], "GPU")
    part = tf.config.LogicalDeviceConfiguration(memory_limit=512)
    tf.config.set_logical_device_configuration(gpu, [part] * LOGICAL_CPUS)
    tf.config.experimental.enable_tensor_float_32_execution(False)
else:
    tf.config.set_visible_devices([], "GPU")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * LOGICAL_CPUS,
)
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.get_logger().setLevel("ERROR")

# An example may take as long as it likes: the machine may be busy. All runs have the same examples:
# a test that fails must not pass when it is run again.
hypothesis.settings.register_profile("kdist", deadline=None, derandomize=True)
hypothesis.settings.load_profile("kdist")


def pytest_collection_finish():
    """No collection of garbage need walk what was imported, a million objects, ever again.

    Once, and before the first test: later, it would keep the garbage of tests for ever.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """The longest first: begun last, they would leave the other core idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _float64():
    """Keras in float64, so that rounding cannot hide a difference between replica counts."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(before)
    keras.config.set_dtype_policy(before)


float64 = pytest.fixture(_float64)
float64_in_module = pytest.fixture(_float64, scope="module")


@pytest.fixture
def small(monkeypatch):
    """Variables of the tests' sizes are divided, also unevenly."""
    monkeypatch.setattr(divided_variables, "LEAST_ELEMENTS", 2)
    monkeypatch.setattr(divided_variables, "_LARGEST_UNEVENNESS", 2.0)


def _without_graph_optimizer():
    """A fifth of the time is TensorFlow's graph optimizer, which the other tests have."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


without_graph_optimizer = pytest.fixture(_without_graph_optimizer)
without_graph_optimizer_in_module = pytest.fixture(_without_graph_optimizer, scope="module")


@pytest.fixture(autouse=True, scope="session")
def iterators_released_in_background():
    """Stock Keras's too: left by a crash, they hold up a later collection for a minute each."""
    make = OwnedIterator.__init__

    def made(iterator, dataset=None, *args, **options):
        make(iterator, dataset, *args, **options)
        if dataset is not None:  # not another name of one that was made before
            release_in_background(iterator)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnedIterator, "__init__", made)
        yield make


@pytest.fixture
def iterators_as_made(iterators_released_in_background, monkeypatch):
    """Release iterators in the background only where kdist does."""
    monkeypatch.setattr(OwnedIterator, "__init__", iterators_released_in_background)


@pytest.fixture(autouse=True, scope="module")
def memory_of_module_returned():
    """Forget a module's custom gradients after its tests, and return freed memory."""
    yield
    forget_custom_gradients()
    _return_memory()


@pytest.fixture(autouse=True)
def memory_of_slow_test_returned(request):
    """Return freed memory after each slow test."""
    yield
    if request.node.get_closest_marker("slow"):
        _return_memory()


def _return_memory():
    """Return freed memory to the system: the C library keeps gigabytes for TensorFlow's threads."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(autouse=True)
def seeded():
    """No test depends on the tests before it."""
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def interruptible():
    """Signals raise or end a process, also in tests that were started where they are ignored."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
