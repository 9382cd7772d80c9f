"""A folder of another training is refused in one line that names the first difference."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from kdist.callbacks import Checkpoint
from kdist.checkpoint import checkpoint_files
from kdist.checkpoint.variable_values import copy_values, state_variables
from kdist.errors import RefusedCheckpointsError, UserError
from replicas import assert_equal
from resumed_training import BATCH, Kill, KilledError, X, Y

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


def trained(folder=None, *, layers=(), optimizer=None, loss="mse", size=None, **options):
    """A model of one step, and its fit with a checkpoint."""
    inner = layers or [keras.layers.Dense(4, activation="relu")]
    model = keras.Sequential([keras.Input((8,)), *inner, keras.layers.Dense(1)])
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.9), loss, run_eagerly=True)
    callbacks = [Checkpoint(folder, verbose=0, **options)]
    model.fit(X[:size], Y[:size], batch_size=BATCH, verbose=0, callbacks=callbacks)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("checkpoints")
    trained(made)
    return made


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (
            {"layers": [keras.layers.Dense(5, activation="relu")]},
            "layers[1].units is 5 here and 4 in the checkpoint",
        ),
        (
            {"layers": [keras.layers.Dense(4, activation="gelu")]},
            'layers[1].activation is "gelu" here and "relu" in the checkpoint',
        ),
        (
            {"layers": [keras.layers.Dense(4, activation="relu"), keras.layers.Dropout(0.5)]},
            "the length of layers is 4 here and 3 in the checkpoint",
        ),
        (
            {"optimizer": keras.optimizers.SGD(0.2, momentum=0.9)},
            "optimizers[0].learning_rate is 0.2",
        ),
        (
            {"optimizer": keras.optimizers.Adam(0.1)},
            'optimizers[0].class is "Adam" here and "SGD" in the checkpoint',
        ),
        ({"loss": "mae"}, 'loss is "mae" here and "mse" in the checkpoint'),
        ({"size": 40}, "data.steps is 5 here and 6 in the checkpoint"),
        ({"size": 43}, "data.arrays.samples is 43 here and 44 in the checkpoint"),
    ],
    ids=["units", "activation", "layers", "rate", "optimizer", "loss", "data", "samples"],
)
def test_another_training(folder, options, difference):
    before = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    with pytest.raises(RefusedCheckpointsError) as refused:
        trained(folder, **options)
    message = str(refused.value)
    assert message.startswith(f"{folder} has checkpoints of another training: {difference}")
    assert message.endswith("pass another folder, or restore the settings of the earlier training")
    assert "\n" not in message
    assert {path.name: path.read_bytes() for path in folder.glob("*.safetensors")} == before


def test_another_model_without_a_description(tmp_path):
    """Of a class of its own: its variables are compared."""

    class Own(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.first, self.second = keras.layers.Dense(units), keras.layers.Dense(1)
            self(X)

        def call(self, x):
            return self.second(self.first(x))

        def get_config(self):
            raise NotImplementedError

    def fit(units):
        model = Own(units)
        model.compile("sgd", "mse", run_eagerly=True)
        before = [variable.numpy().copy() for variable in model.variables]
        try:
            model.fit(X, Y, verbose=0, callbacks=[Checkpoint(tmp_path, verbose=0)])
        except UserError:
            assert_equal(model.variables, before)
            raise

    fit(4)
    with pytest.raises(UserError, match=r"another training: layers\[0\].units is 5 here and 4"):
        fit(5)


def test_variables_are_compared_where_settings_say_nothing(tmp_path):
    class Scale(keras.layers.Layer):
        def __init__(self, size):
            super().__init__()
            self.size = size

        def build(self, shape):
            self.scale = self.add_weight(shape=(self.size,), name="scale")

        def call(self, x):
            return x * keras.ops.sum(self.scale)

        def get_config(self):
            return {}

    trained(tmp_path, layers=[Scale(2)])
    expected = (
        r"the checkpoint has model's .*scale/scale \[2\] float32 where this training has model's"
    )
    with pytest.raises(UserError, match=expected):
        trained(tmp_path, layers=[Scale(3)])


def test_nothing_is_restored_of_another_training(folder):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    before = copy_values(state_variables(model))
    with pytest.raises(UserError):
        model.fit(X, Y, verbose=0, callbacks=[Checkpoint(folder)])
    after = copy_values(state_variables(model))
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_other_metrics_amid_an_epoch(tmp_path):
    """Refused before the weights are restored, which a caller may go on with."""

    def fit(*metrics, end=None):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=list(metrics))
        before = copy_values(state_variables(model))
        callbacks = [Checkpoint(tmp_path, every_steps=2, verbose=0), Kill(end)]
        try:
            model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=callbacks)
        except UserError:
            after = copy_values(state_variables(model))
            assert {n: a.tobytes() for n, a in before.items()} == {
                n: a.tobytes() for n, a in after.items() if n in before
            }
            raise

    with pytest.raises(KilledError):
        fit("mae", end=4)
    with pytest.raises(UserError, match="another training: only the checkpoint has metrics's "):
        fit()
    fit("mae")


def test_resume_never_and_must(folder, tmp_path):
    with pytest.raises(
        UserError, match=r'resume is "never", but .* has checkpoints, the newest e0'
    ):
        trained(folder, resume="never")
    with pytest.raises(UserError, match=r'resume is "must", but .* has no checkpoint: pass the fo'):
        trained(tmp_path, resume="must")
    trained(tmp_path, resume="never")
    assert len(checkpoint_files(tmp_path)) == 1


def test_two_trainings_at_once(tmp_path):
    class Second(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            with pytest.raises(UserError, match="is in use by process"):
                trained(tmp_path)

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0, callbacks=[Second(), Checkpoint(tmp_path, verbose=0)])


@pytest.mark.parametrize(
    "argument",
    [
        {"every_seconds": 0},
        {"every_seconds": "1"},
        {"every_steps": 0},
        {"every_steps": 1.5},
        {"keep": 0},
        {"resume": True},
        {"preemption": ["KILL"]},
    ],
    ids=str,
)
def test_arguments_out_of_range(argument):
    [name] = argument
    with pytest.raises(UserError, match=rf"\b{name}\b"):
        Checkpoint("folder", **argument)


def test_two_in_one_fit(tmp_path):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    both = [Checkpoint(tmp_path / name) for name in ("one", "other")]
    with pytest.raises(UserError, match="received several Checkpoint callbacks"):
        model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=both)
    assert list(tmp_path.iterdir()) == []


LATE = """
import sys, keras, numpy as np
from kdist.callbacks import Checkpoint
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((4, 1))
model.fit(x, x, verbose=0, callbacks=[Checkpoint(sys.argv[1], verbose=0)])
"""


def test_a_callback_that_is_made_while_the_first_fit_is_called_is_refused(tmp_path):
    """Python has looked up `model.fit` before its arguments, and so before the patches."""
    command = [sys.executable, "-c", LATE, str(tmp_path / "checkpoints")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "UserError: Checkpoint was created inside the call of fit, too late" in done.stderr


def test_a_model_that_only_its_own_step_builds_is_to_be_called_before(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            return super().train_step(data)

    def fit(*, called):
        model = Own()
        model.compile("sgd", "mse")
        x = np.ones((4, 2), "float32")
        if called:
            model(x[:1])
        checkpoint = Checkpoint(tmp_path, verbose=0)
        model.fit(x, x[:, :1], verbose=0, callbacks=[checkpoint])

    fit(called=False)
    with pytest.raises(UserError, match="the layer dense.* has no weights yet, call the model on"):
        fit(called=False)
    fit(called=True)
