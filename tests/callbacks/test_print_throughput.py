import csv
import math

import keras
import pytest
import tensorflow as tf
from kdist.callbacks import PrintThroughput, print_throughput
from kdist.errors import UserError
from kdist.performance.flops import training_flops
from tiny_training import (
    BATCH,
    IMAGES,
    STEP_SECONDS,
    STEPS,
    FakeClock,
    Ticker,
    batches,
    tiny_fit,
    tiny_model,
    traced_model,
)

RATE = IMAGES / (STEPS * STEP_SECONDS)


def fit(*, total_images=None, **options):
    clock = FakeClock()
    callback = PrintThroughput(total_images, clock=clock)
    return tiny_fit([Ticker(clock), callback], **options)["images_per_sec"], callback


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_only_the_training_part_of_an_epoch_counts(replicas, validate, capsys):
    rates, _ = fit(model=traced_model(replicas=replicas), validate=validate, epochs=2)
    assert rates == [RATE] * 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"Images/sec: {RATE:.1f}"] * 2
    assert lines[2:] == [
        f"Images/sec after the first epoch: {RATE:.1f} ({RATE / replicas:.1f} per replica,"
        f" {STEP_SECONDS:.4f} seconds per step)"
    ]


def test_the_line_has_one_decimal(capsys):
    fit(total_images=1998, epochs=1)
    assert capsys.readouterr().out == "Images/sec: 1332.0\n"  # no second epoch to sum up


@pytest.mark.parametrize("steps_per_execution", [2, 4])
def test_several_steps_in_one_execution(steps_per_execution):
    rates, callback = fit(model=traced_model(steps_per_execution=steps_per_execution))
    executions = math.ceil(STEPS / steps_per_execution)
    assert rates == [IMAGES / (executions * STEP_SECONDS)] * 3
    assert callback.warm_steps == 2 * STEPS


@pytest.mark.parametrize("steps_per_execution", [1, 2])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_dataset_of_unknown_size(steps_per_execution):
    dataset = batches().filter(lambda *_: True)
    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    model = traced_model(steps_per_execution=steps_per_execution)
    rates, callback = fit(model=model, x=dataset)
    executions = math.ceil(STEPS / steps_per_execution)
    assert rates == [IMAGES / (executions * STEP_SECONDS)] * 3
    assert callback.meter.images == 3 * IMAGES


def test_an_epoch_cut_short_counts_what_it_had():
    class StopAtSecondStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    clock = FakeClock()
    callback = PrintThroughput(clock=clock)
    tiny_fit([Ticker(clock), StopAtSecondStep(), callback], validate=False)
    assert (callback.meter.images, callback.meter.seconds) == (2 * BATCH, 2 * STEP_SECONDS)


def test_the_number_of_images_may_be_given():
    rates, callback = fit(total_images=30)
    assert rates == [20.0] * 3
    assert callback.meter.images == 90


class OwnStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


def test_a_model_with_its_own_step_needs_the_number_of_images():
    clock = FakeClock()
    model = tiny_model(model_class=OwnStep)
    ticker = Ticker(clock)
    with pytest.raises(UserError, match=r"OwnStep.*pass total_images="):
        tiny_fit([ticker, PrintThroughput(clock=clock)], model=model)
    assert ticker.executions == []
    rates, _ = fit(total_images=IMAGES, model=model)
    assert rates == [RATE] * 3


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_an_epoch_without_data_has_no_rate():
    dataset = batches().filter(lambda *_: True)
    rates, callback = fit(x=dataset, steps_per_epoch=STEPS, epochs=2, validate=False)
    assert rates[0] == RATE
    assert math.isnan(rates[1])
    assert callback.meter.images_per_second == RATE


@pytest.mark.parametrize("replicas", [1, 2])
def test_rates_a_replica_and_a_step(replicas):
    clock = FakeClock()
    history = tiny_fit(
        [Ticker(clock), PrintThroughput(clock=clock)], model=traced_model(replicas=replicas)
    )
    assert history["images_per_sec_per_replica"] == [RATE / replicas] * 3
    assert history["seconds_per_step"] == [STEP_SECONDS] * 3


def test_the_first_epoch_of_every_fit_is_left_out_of_the_summary():
    class SlowFirstStep(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            clock.now += 40 if (self.model.optimizer.iterations.numpy() - before) == 0 else 0

    clock = FakeClock()
    model = traced_model()
    before = model.optimizer.iterations.numpy()
    callback = PrintThroughput(clock=clock)
    tiny_fit([callback, SlowFirstStep(), Ticker(clock)], model=model)
    # The ticker moves the clock after this callback has noted the time: a step less each epoch.
    assert callback.meter.seconds > 40
    assert callback.warm_meter.images == 2 * IMAGES
    assert callback.warm_meter.seconds == 2 * (STEPS - 1) * STEP_SECONDS
    assert callback.warm_steps == 2 * STEPS


def test_utilization_is_the_models_arithmetic_over_that_of_a_matrix_product(capsys, monkeypatch):
    monkeypatch.setattr(print_throughput, "peak_flops_per_second", lambda strategy, clock: 1e3)
    clock = FakeClock()
    callback = PrintThroughput(utilization=True, clock=clock)
    history = tiny_fit([Ticker(clock), callback], epochs=2)
    flops = training_flops(traced_model())
    assert history["model_flops_per_sec"] == [RATE * flops] * 2
    assert history["utilization"] == [RATE * flops / 1e3] * 2
    assert f"Utilization: {RATE * flops / 10:.1f} % of 0.00 TFLOP/s" in capsys.readouterr().out


def test_later_callbacks_find_the_rate_in_logs(tmp_path):
    clock = FakeClock()
    path = tmp_path / "log.csv"
    logger = keras.callbacks.CSVLogger(str(path))
    tiny_fit([Ticker(clock), PrintThroughput(clock=clock), logger], epochs=2)
    with path.open() as file:
        assert [float(row["images_per_sec"]) for row in csv.DictReader(file)] == [RATE] * 2


def test_the_state_holds_all_epochs():
    _, callback = fit(epochs=2)
    state = callback.get_state()
    assert state == {
        "images": 2 * IMAGES,
        "seconds": 2 * STEPS * STEP_SECONDS,
        "warm_images": IMAGES,
        "warm_seconds": STEPS * STEP_SECONDS,
        "warm_steps": STEPS,
    }
    clock = FakeClock()
    resumed = PrintThroughput(clock=clock)
    resumed.set_state(state)
    tiny_fit([Ticker(clock), resumed], epochs=3, initial_epoch=2)
    assert resumed.meter.images == 3 * IMAGES
    assert resumed.meter.images_per_second == RATE


@pytest.mark.parametrize("verbose", [0, 1])
def test_keras_reads_the_logs_of_a_step_before_a_callback_sees_them(verbose):
    """Which waits for the step: the time that a callback notes then includes all of it."""
    ticker = Ticker(FakeClock())
    tiny_fit([ticker], epochs=1, verbose=verbose)
    assert len(ticker.executions) == STEPS
    assert all(type(value) is float for _, logs in ticker.executions for value in logs.values())


@pytest.mark.parametrize("total", [0, -5, 2.5, "10", True])
def test_a_number_of_images_that_is_none_is_refused(total):
    with pytest.raises(UserError, match="total_images is"):
        PrintThroughput(total)
