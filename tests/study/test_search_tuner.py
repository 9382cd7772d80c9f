import json
import math
import re
import shutil
import signal

import kdist
import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream.internals import custom_gradients
from kdist.data import fashion_mnist
from kdist.errors import UserError
from kdist.signals import signal_of
from kdist.study import search_models as hypermodel_module
from kdist.study.search_models import UserHyperModel, WideResNetHyperModel
from kdist.study.search_oracles import make_oracle
from kdist.study.search_processes import ENDED_BY
from kdist.study.search_space import SearchSpace
from kdist.study.search_tuner import ReplicaTuner, ReportProgress
from kdist.training.config import TrainConfig, make_plan
from kdist.training.user_model.functions import reason_of

ACCURACY = keras_tuner.Objective("val_accuracy", "max")
X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


def oracle(kind="random", objective=ACCURACY, **options):
    return make_oracle(kind, objective=objective, **{"max_trials": 3, "max_epochs": 3, **options})


def user_tuner(one, folder, build, *, oracle, y=Y, config=None, **options):
    """A tuner of a user's function."""
    config = config or TrainConfig(epochs=3)
    model = UserHyperModel(build, ((X, y), (X, y)), config, one)
    return ReplicaTuner(
        oracle, model, strategy=one, directory=str(folder), project_name="t", **options
    )


class Scripted(keras_tuner.HyperModel):
    """Trains nothing: `fit` returns, or raises, what `outcome` makes of the values."""

    def __init__(self, outcome):
        super().__init__()
        self.outcome = outcome
        self.fits = []

    def build(self, hp):
        hp.Float("x", 0.0, 1.0)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def fit(self, hp, model, **kwargs):
        self.fits.append(hp.values["x"])
        result = self.outcome(hp.values["x"], len(self.fits))
        if isinstance(result, BaseException):
            raise result
        return {"val_accuracy": result, "loss": 1.0}


@pytest.fixture
def scripted(one, tmp_path):
    def make(outcome, announce=None, executions_per_trial=1, **options):
        model = Scripted(outcome)
        tuner = ReplicaTuner(
            oracle(**options),
            model,
            strategy=one,
            directory=str(tmp_path),
            project_name="t",
            announce=announce,
            executions_per_trial=executions_per_trial,
        )
        return tuner, model

    return make


def statuses(tuner):
    trials = tuner.oracle.trials
    return [trials[name].status for name in tuner.oracle.start_order]


def test_failed_trials_are_recorded_and_skipped(scripted, tmp_path):
    ends = [
        tf.errors.ResourceExhaustedError(None, None, "OOM"),
        0.5,
        float("nan"),
        ValueError("no\nmore"),
    ]
    lines = []
    tuner, _ = scripted(lambda x, count: ends[count - 1], max_trials=4, announce=lines.append)
    tuner.search(verbose=0)
    assert statuses(tuner) == ["FAILED", "COMPLETED", "FAILED", "FAILED"]
    reasons = [
        (tmp_path / "t" / f"trial_{number}" / "failure.txt").read_text().splitlines()[0]
        for number in (0, 3)
    ]
    assert reasons == ["out of memory", "ValueError: no"]
    assert [trial.trial_id for trial in tuner.oracle.get_best_trials(9)] == ["1"]
    assert [line.partition(" (")[0] for line in lines[1::2]] == [
        "trial 0: failed: out of memory",
        "trial 1: val_accuracy 0.5",
        "trial 2: failed: val_accuracy was nan",
        "trial 3: failed: ValueError: no",
    ]
    assert re.search(r"seconds\); 1 of 4 trials, about \S+ (seconds|minutes) left$", lines[1])
    assert lines[-1].endswith("seconds); 4 of 4 trials")


def test_the_search_stops_after_failures_in_a_row(scripted):
    tuner, model = scripted(lambda x, count: ValueError("bug"), max_trials=9, max_failures=3)
    tuner.search(verbose=0)
    assert statuses(tuner) == ["FAILED"] * 3


class Killed(BaseException):
    """Ends a search as a signal does: nothing is caught, nothing is saved."""


def test_a_killed_search_goes_on_as_if_it_had_not_been(scripted, tmp_path):
    tuner, model = scripted(lambda x, count: x)
    tuner.search(verbose=0)
    expected = model.fits
    shutil.rmtree(tmp_path)
    tuner, model = scripted(lambda x, count: Killed() if count == 2 else x)
    with pytest.raises(Killed):
        tuner.search(verbose=0)
    assert statuses(tuner) == ["COMPLETED", "RUNNING"]
    resumed, again = scripted(lambda x, count: x)
    resumed.search(verbose=0)
    assert again.fits == expected[1:]
    assert statuses(resumed) == ["COMPLETED"] * 3
    finished, idle = scripted(lambda x, count: x)
    finished.search(verbose=0)
    assert idle.fits == []


def test_a_trial_that_the_oracles_file_does_not_know_is_drawn_again(scripted, tmp_path):
    before = tmp_path / "t" / "oracle.json"
    kept = {}

    def outcome(x, count):
        if count == 2:  # the kill came between the trial's file and the oracle's
            before.write_text(kept["text"])
            raise Killed
        kept["text"] = before.read_text()
        return x

    tuner, model = scripted(outcome)
    with pytest.raises(Killed):
        tuner.search(verbose=0)
    resumed, again = scripted(lambda x, count: x)
    resumed.search(verbose=0)
    assert again.fits[0] == model.fits[1]
    assert len(statuses(resumed)) == 3


def test_the_executions_of_a_trial_are_averaged(scripted):
    tuner, model = scripted(
        lambda x, count: [0.2, 0.4][count % 2], executions_per_trial=2, max_trials=1
    )
    tuner.search(verbose=0)
    assert len(model.fits) == 2
    assert tuner.oracle.trials["0"].score == pytest.approx(0.3)


def test_the_trial_that_ended_a_process_is_not_tried_again(scripted, monkeypatch):
    monkeypatch.setenv(ENDED_BY, "1=its process ended with exit code -9")
    tuner, model = scripted(lambda x, count: x)
    tuner.search(verbose=0)
    assert statuses(tuner) == ["COMPLETED", "FAILED", "COMPLETED"]
    assert len(model.fits) == 2


@pytest.mark.parametrize(("kind", "seeds"), [("random", (0, 0, 1)), ("bayesian", (0, 0))])
def test_the_same_seed_draws_the_same_trials(scripted, tmp_path, kind, seeds):
    fits = []
    for seed in seeds:
        tuner, model = scripted(lambda x, count: x, kind=kind, seed=seed)
        tuner.search(verbose=0)
        fits.append(model.fits)
        shutil.rmtree(tmp_path)
    assert fits[0] == fits[1]
    assert len(set(fits[0])) == 3
    assert fits[-1] != fits[0] or kind == "bayesian"


IN_KERAS = """Exception encountered when calling Sequential.call().

\x1b[1mInput 0 of layer "dense" is incompatible with the layer\x1b[0m

Arguments received by Sequential.call():
  • inputs=tf.Tensor(shape=(None, 5))"""
IN_A_GRAPH = """Graph execution error:

Detected at node compile_loss/Softmax defined at (most recent call last):
  File "fit.py", line 3, in <module>
<stack traces unavailable>
Received a label value of 12 which is outside the valid range of [0, 10).
\t [[{{node compile_loss/Softmax}}]]"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out of memory"),
        (keras_tuner.errors.FailedTrialError("loss was nan"), "loss was nan"),
        (UserError("width is 0"), "width is 0"),
        (KeyError(), "KeyError: "),
        (
            ValueError(IN_KERAS),
            'ValueError: Input 0 of layer "dense" is incompatible with the layer',
        ),
        (
            tf.errors.InvalidArgumentError(None, None, IN_A_GRAPH),
            "InvalidArgumentError: Received a label value of 12 which is outside the valid range of"
            " [0, 10).",
        ),
    ],
)
def test_why_a_trial_failed_is_a_line(error, reason):
    assert reason_of(error, plain=(keras_tuner.errors.FailedTrialError,)) == reason


def test_a_signal_waits_for_the_end_of_a_trials_batch(one, tmp_path):
    """Raised anywhere, it may be lost in a destructor of TensorFlow."""
    steps = []

    class Send(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            steps.append("begun")
            signal.raise_signal(signal.SIGTERM)
            steps.append("not raised here")

    tuner = user_tuner(one, tmp_path, build, oracle=oracle(), make_callbacks=lambda *_: [Send()])
    with pytest.raises(KeyboardInterrupt) as raised:
        tuner.search(verbose=0)
    assert signal_of(raised.value) == signal.SIGTERM
    assert steps == ["begun", "not raised here"]
    assert statuses(tuner) == ["RUNNING"]


def test_a_trial_without_the_objective_ends_the_search(one, tmp_path):
    def unmeasured(hp):
        hidden = keras.layers.Dense(hp.Int("units", 1, 3))
        model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def tuner(target=None, **options):
        options = {"oracle": oracle(**options), "target_accuracy": target, "time_budget": 60}
        return user_tuner(one, tmp_path / str(target), unmeasured, **options)

    words = "trials are compared by val_accuracy, but training reported loss, val_loss: compile"
    timed = keras_tuner.Objective("seconds_to_target", "min")
    for one_tuner in (tuner(), tuner(0.5, objective=timed)):
        with pytest.raises(UserError, match=words):
            one_tuner.search(verbose=0)
        assert statuses(one_tuner) == ["RUNNING"]
    seen = keras_tuner.Objective("loss", "min")
    fine = tuner(0.1, objective=seen)
    fine.target_accuracy = None
    fine.search(verbose=0)
    assert statuses(fine) == ["COMPLETED"] * 3


def build(hp):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(hp.Int("units", 2, 9), "relu")])
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.Dense(1, "sigmoid"))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model


class Iterations(keras.callbacks.Callback):
    """Notes the optimizer's steps when training begins and ends."""

    def __init__(self, name, notes):
        super().__init__()
        self.name = name
        self.notes = notes

    def on_train_begin(self, logs=None):
        self.first = int(self.model.optimizer.iterations.numpy())

    def on_train_end(self, logs=None):
        self.notes[self.name] = (self.first, int(self.model.optimizer.iterations.numpy()))


def test_a_promoted_trial_goes_on_and_the_best_model_is_had_again(one, tmp_path, capsys):
    notes = {}
    tuner = user_tuner(
        one,
        tmp_path,
        build,
        oracle=oracle("hyperband", max_epochs=2, factor=2),
        config=TrainConfig(batch_size=16),
        make_callbacks=lambda name, execution, values: [Iterations(name, notes)],
    )
    tuner.search(verbose=0)
    assert notes == {"0": (0, 4), "1": (0, 4), "2": (4, 8)}
    promoted = tuner.oracle.trials["2"]
    assert promoted.hyperparameters.values["tuner/initial_epoch"] == 1
    assert promoted.metrics.get_last_value("epochs") == 2
    parent = tuner.oracle.trials[promoted.hyperparameters.values["tuner/trial_id"]]
    spent = [trial.metrics.get_last_value("seconds") for trial in (parent, promoted)]
    assert spent[0] < spent[1]
    best = tuner.get_best_models()[0]
    assert any(isinstance(layer, kdist.layers.SyncBatchNormalization) for layer in best.layers)
    _, accuracy = best.evaluate(X, Y, verbose=0)
    assert accuracy == pytest.approx(tuner.oracle.get_best_trials()[0].score)
    tuner.results_summary()
    assert "Trial 2 summary" in capsys.readouterr().out


def test_seconds_to_a_target_stop_the_trial_and_nan_fails_it(one, tmp_path):
    def diverging(hp):
        model = build(hp)
        model.optimizer.learning_rate = hp.Choice("rate", [0.01, 1e30])
        return model

    shown = []

    def see(epoch, logs):
        shown.append(logs.get("seconds_to_target"))

    timed = keras_tuner.Objective("seconds_to_target", "min")
    tuner = user_tuner(
        one,
        tmp_path,
        diverging,
        oracle=oracle(objective=timed, max_trials=2),
        target_accuracy=0.05,
        time_budget=60,
        make_callbacks=lambda *_: [keras.callbacks.LambdaCallback(on_epoch_end=see)],
    )
    tuner.oracle.populate_space = lambda name: {
        "status": "RUNNING",
        "values": {"units": 4, "rate": (0.01, 1e30)[int(name)]},
    }
    before = custom_gradients()
    tuner.search(verbose=0)
    assert statuses(tuner) == ["COMPLETED", "FAILED"]
    assert custom_gradients() == before  # TensorFlow keeps no graph of a trial
    reached = tuner.oracle.trials["0"].metrics
    assert reached.get_last_value("reached") == 1
    assert reached.get_last_value("epochs") == 1
    assert 0 < reached.get_last_value("seconds_to_target") <= reached.get_last_value("seconds")
    assert shown[0] == reached.get_last_value("seconds_to_target")  # what trackers see
    failure = tmp_path / "t" / "trial_1" / "failure.txt"
    assert failure.read_text().startswith("loss was nan in epoch 1, step")


def test_a_time_budget_needs_no_accuracy(one, tmp_path):
    def regression(hp):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(hp.Int("units", 1, 1))])
        model.compile("sgd", "mse")
        return model

    alone = oracle(objective=keras_tuner.Objective("val_loss", "min"), max_trials=1)
    tuner = user_tuner(one, tmp_path, regression, oracle=alone, y=9 * Y, time_budget=1e-9)
    tuner.search(verbose=0)
    assert statuses(tuner) == ["COMPLETED"]
    assert tuner.oracle.trials["0"].metrics.get_last_value("epochs") == 1


@pytest.mark.parametrize(
    ("rule", "drawn", "factor"),
    [("linear", {}, 2), ("linear", {"batch_size": 64}, 4), ("auto", {}, 2**0.5)],
)
def test_a_users_rate_follows_batch_and_replicas(rule, drawn, factor):
    strategy = kdist.MirroredStrategy(replicas=2)
    config = TrainConfig(batch_size=32, lr_rule=rule)
    hp = keras_tuner.HyperParameters()
    hp.values = dict(drawn)
    model = UserHyperModel(build, None, config, strategy)
    built = strategy.build(lambda: model.build(hp))
    assert float(built.optimizer.learning_rate.numpy()) == pytest.approx(0.01 * factor)


def test_a_build_that_returns_no_compiled_model_is_told(one):
    model = UserHyperModel(lambda hp: None, None, TrainConfig(), one)
    with pytest.raises(UserError, match="returned NoneType, expected a compiled keras.Model"):
        model.build(keras_tuner.HyperParameters())
    model = UserHyperModel(lambda hp: keras.Sequential(), None, TrainConfig(), one)
    with pytest.raises(UserError, match="returned Sequential that is not compiled, expected"):
        model.build(keras_tuner.HyperParameters())


def test_a_built_in_network_is_trained_with_the_trials_settings(one, tmp_path, monkeypatch):
    made = []

    def small(config, data, strategy, plan):
        made.append((config, plan.learning_rate, plan.steps_per_epoch(len(data.train_images))))
        model = keras.Sequential([keras.Input(data.image_shape), keras.layers.Flatten()])
        model.add(keras.layers.Dense(data.classes, "softmax"))
        optimizer = keras.optimizers.SGD(
            plan.learning_rate, use_ema=config.ema_momentum is not None
        )
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    monkeypatch.setattr(hypermodel_module, "make_model", small)
    base = TrainConfig(epochs=2, batch_size=16, augment=False, ema_momentum=0.9)
    space = SearchSpace({"batch_size": [32], "base_lr": {"min": 0.01, "max": 0.1}}, base=base)
    data = fashion_mnist(sample=True, announce=lambda line: None).subset(80)
    tuner = ReplicaTuner(
        oracle(max_trials=1),
        WideResNetHyperModel(space, base, data, one),
        strategy=one,
        directory=str(tmp_path),
    )
    tuner.search(verbose=0)
    (config, rate, steps) = made[0]
    assert len(made) == 1  # no model was made to learn the space
    trial = tuner.oracle.trials["0"]
    drawn = trial.hyperparameters.values["base_lr"]
    assert config.base_lr == rate == pytest.approx(2 * drawn, rel=1e-5)
    assert (config.batch_size, steps) == (32, math.ceil(80 / 32))
    # The weights that are kept are the averages, with which the score was reached.
    model = tuner.get_best_models()[0]
    from kdist.training.images import make_pipelines

    _, validation = make_pipelines(config, data, make_plan(config, replicas=1))
    _, accuracy = model.evaluate(validation, verbose=0)
    assert accuracy == pytest.approx(trial.score)
    state = json.loads((tmp_path / "untitled_project" / "trial_0" / "trial.json").read_text())
    assert state["status"] == "COMPLETED"


def report(executions=1, **options):
    """The calls of a fit of two epochs after the first, of two steps each."""
    calls = []

    class Calls:
        update = staticmethod(lambda done, what: calls.append((done, what)))
        end_epoch = update

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = ReportProgress(
        Calls, objective="val_loss", execution=executions - 1, executions=executions
    )
    x = np.zeros((4, 1), "float32")
    model.fit(x, x, batch_size=2, verbose=0, callbacks=[callback], **options)
    return calls


def test_a_trial_that_begins_later_is_done_at_its_last_epoch():
    assert report(initial_epoch=1, epochs=3) == [
        (0.25, "epoch 2/3"),
        (0.5, "epoch 2/3"),
        (0.5, "epoch 2/3: loss 0"),
        (0.75, "epoch 3/3"),
        (1.0, "epoch 3/3"),
        (1.0, "epoch 3/3: loss 0"),
    ]


def test_executions_share_a_trial_and_its_objective_is_named():
    x = np.zeros((4, 1), "float32")
    calls = report(executions=2, epochs=1, validation_data=(x, x))
    assert calls[0] == (0.75, "execution 2/2, epoch 1/1")
    assert calls[-1] == (1.0, "execution 2/2, epoch 1/1: val_loss 0")
