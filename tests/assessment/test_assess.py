"""Scripts that are run and judged, each by what it does."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from kdist.assessment.options import AssessOptions
from kdist.assessment.recipe import recipe_command
from kdist.assessment.run import assess
from kdist.errors import ReportedError, UserError

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = ("targets", "seconds", "replicas", "scaled", "warm-up", "parts", "metrics")

STOCK = """
import keras
import numpy as np
import tensorflow as tf
from kdist.data import ImageData


class WarmUpByHand(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        self.model.optimizer.learning_rate = full * min(1.0, (1 + step) / 20)


random = np.random.default_rng(0)
labels = np.arange(640) % 10
images = 200 * np.eye(10)[labels] + random.integers(0, 50, (640, 10))
images = images.reshape(640, 5, 2, 1).astype("uint8")
test = images[:100], labels[:100]
ImageData("Fashion-MNIST", "made", images, labels, *test, class_names=tuple("0123456789"))
x, y = images / 100, labels
strategy = tf.distribute.MirroredStrategy()
full = 0.05 * strategy.num_replicas_in_sync
with strategy.scope():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    sgd = keras.optimizers.SGD(full, momentum=0.9)
    model.compile(sgd, "sparse_categorical_crossentropy", metrics=["acc"])
model.fit(x, y, 32, 40, 0, [WarmUpByHand()], validation_data=(x[:100], y[:100]))
print("after the fit")
"""

# Its strategy names two replicas, its first fit warms up, and it saves its model.
TWO_FITS = (
    STOCK.replace("tf.distribute.MirroredStrategy()", "kdist.MirroredStrategy(replicas=2)")
    .replace("import keras\n", "from pathlib import Path\n\nimport kdist\nimport keras\n", 1)
    .partition("model.fit(")[0]
    + """

class Saves(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.save(Path(__file__).with_name("model.keras"))


data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
model.optimizer.learning_rate = full / 4
first = model.fit(data, epochs=1, validation_data=(x[:100], y[:100]), verbose=0)
print("loss", first.history["loss"][0])
model.optimizer.learning_rate = full
model.fit(data, epochs=40, validation_data=(x[:100], y[:100]), callbacks=[Saves()], verbose=0)
model.fit(data, epochs=3, verbose=0)
print("after the last fit")
"""
)

# The targets are met long before the rate is what it will be.
LONG_WARM_UP = STOCK.replace(
    "[WarmUpByHand()]",
    "[keras.callbacks.LearningRateScheduler(lambda epoch, _: full * min(1.0, (1 + epoch) / 20))]",
)

# It divides the CPU itself, takes a part of the data, and tries again whatever happens.
OWN_CPU_AND_PART = (
    """
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
"""
    + STOCK.partition("model.fit(")[0]
    .replace('ImageData("Fash', 'part = ImageData("Fash')
    .replace("x, y = images / 100, labels", "x, y = images[:320] / 100, labels[:320]")
    + """
part = part.subset(320)
while True:
    try:
        model.fit(x, y, 32, 40, 0, [WarmUpByHand()], validation_data=(x[:50], y[:50]))
    except:
        print("tries again")
"""
)

CRASH = "print('begins')\nraise RuntimeError('no such GPU')\n"


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Observes programs in forked processes; what they print is in `start.output`."""
    output = tmp_path_factory.mktemp("output") / "output.txt"
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forked_observers.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def forked(order, program, environment, prints):
        job = {"order": dict(order), "program": list(program), "output": str(output)}
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        if prints:
            forked.output = output.read_text()
        return code

    yield forked
    server.stdin.close()
    server.wait()
    server.stdout.close()


def assessed(start, script, **options):
    """The lines that are not passed, and all lines that are printed."""
    printed = []
    lines = assess(
        AssessOptions(script=str(script), replicas=2, **options),
        announce=printed.append,
        start=start,
        devices=["CPU:0"],
    )
    if len(lines) == 1:
        return lines[0].found, printed
    assert len(lines) == len(LINES)
    return [name for name, line in zip(LINES, lines, strict=True) if not line.passed], printed


@pytest.mark.parametrize(
    ("script", "missed", "found"),
    [
        (
            "assessment_start.py",
            {"replicas", "scaled", "warm-up"},
            "1 of 2; rows of each in the first epoch: 10,000",
        ),
        (
            "assessment_rate.py",
            {"scaled"},
            "at most 0.02 with one, 0.02 with 2: 1 times as much, expected 2",
        ),
        ("assessment_warmup.py", {"warm-up"}, "it begins with 0.04, and does not rise"),
        ("assessment_shard.py", {"metrics"}, "each validation has 1,000 of 2,000 test images"),
    ],
)
def test_the_exercises_miss_exactly_their_lines(start, script, missed, found):
    names, printed = assessed(start, EXAMPLES / script)
    assert set(names) - {"seconds"} == missed, printed  # a busy machine may be slow
    assert any(line.startswith("NOT PASSED") and found in line for line in printed)
    assert printed[-1] == f"Not passed: {len(names)} of 7 lines"


def test_a_script_of_stock_tensorflow_passes(start, tmp_path):
    """`MirroredStrategy`, positional arguments of `fit`, rates that a callback sets."""
    (tmp_path / "stock.py").write_text(STOCK)
    names, printed = assessed(start, tmp_path / "stock.py", generation=2)
    assert not set(names) - {"seconds"}, printed
    assert "after the fit" in start.output
    assert any("320, 320" in line for line in printed)
    assert any("from 0.005 to 0.1 in 19 steps" in line for line in printed)


def test_a_script_that_fits_twice_passes(start, tmp_path):
    """Its rates are those of both fits, and its file is the model that it has trained."""
    (tmp_path / "two_fits.py").write_text(TWO_FITS)
    names, printed = assessed(start, tmp_path / "two_fits.py", generation=2)
    assert not set(names) - {"seconds"}, printed
    assert "from 0.025 to 0.1 in 20 steps" in "\n".join(printed)
    assert "after the last fit" not in start.output
    assert keras.saving.load_model(tmp_path / "model.keras").optimizer.iterations.numpy() > 20


def test_a_warm_up_that_is_longer_than_the_training_passes(start, tmp_path):
    (tmp_path / "long.py").write_text(LONG_WARM_UP)
    names, printed = assessed(start, tmp_path / "long.py", generation=2)
    assert not set(names) - {"seconds"}, printed
    assert any("at most 0.05 with one, 0.1 with 2" in line for line in printed)


def test_a_script_with_its_own_cpus_that_takes_a_part_and_never_ends(start, tmp_path):
    (tmp_path / "own_cpu.py").write_text(OWN_CPU_AND_PART)
    names, printed = assessed(start, tmp_path / "own_cpu.py", generation=2)
    assert set(names) - {"seconds"} == {"parts", "metrics"}, printed
    assert any("320 of 640 images in epoch 1, so some never" in line for line in printed)
    assert any("has 50 of 100 test images" in line for line in printed)
    assert start.output.count("tries again") == 1
    assert "cuInit" not in start.output


def test_a_recipe_that_cannot_be_trained_is_an_error_that_its_process_has_printed():
    options = AssessOptions(dataset="sample", seed=3)
    with pytest.raises(ReportedError):
        assess(options, announce=[].append, start=lambda *_: 2, devices=["CPU:0"])
    command = recipe_command(options, replicas=2, run_dir=Path("runs"))
    assert command[command.index("--seed") + 1] == "3"


def test_several_workers_are_refused(monkeypatch):
    cluster = {"worker": ["a:1", "b:1"]}
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    )
    with pytest.raises(UserError, match="is for one worker, and TF_CONFIG has several"):
        assess(devices=["CPU:0"])


def test_a_script_that_crashes_is_told_with_its_last_line(tmp_path):
    """By the command, in processes of its own."""
    script = tmp_path / "crash.py"
    script.write_text(CRASH)
    done = subprocess.run(
        [sys.executable, "-m", "kdist", "assess", str(script)], capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "begins" in done.stdout
    assert "NOT PASSED  the program runs: RuntimeError: no such GPU" in done.stdout
    assert "crash.py" in done.stderr  # its traceback
    assert "runpy" not in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"generation": 3}, "generation=3 has no targets: pass 1 or 2"),
        ({"script": "no.py"}, r"there is no script no\.py"),
        ({"script": ""}, "the script has to be a path, received an empty one"),
        ({"replicas": 0}, "replicas has to be from 1 to 64, received 0"),
        ({"dataset": "mnist"}, "dataset has to be one of fashion_mnist, cifar10, sample"),
        ({"script": __file__, "data_dir": "x"}, "finds its images itself: remove data_dir"),
        ({"script": __file__, "seed": 1}, "has a seed of its own: remove seed"),
        ({"seed": -1}, "seed has to be from 0"),
        ({"dataset": "sample", "data_dir": "x"}, "the sample is embedded"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        AssessOptions(**options)
