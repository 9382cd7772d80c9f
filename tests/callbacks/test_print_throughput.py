import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import Checkpoint, PrintThroughput
from kdist.callbacks.print_throughput import count_images
from kdist.errors import UserError
from tiny_training import (
    BATCH,
    IMAGES,
    STEP_SECONDS,
    STEPS,
    FakeClock,
    Ticker,
    batches,
    images,
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
        f"Images/sec without the first epoch: {RATE:.1f} ({RATE / replicas:.1f} per replica,"
        f" {STEP_SECONDS:.4f} seconds per step)"
    ]


@pytest.mark.parametrize("steps_per_execution", [2, 4])
def test_several_steps_in_one_execution(steps_per_execution):
    rates, callback = fit(model=traced_model(steps_per_execution=steps_per_execution))
    executions = math.ceil(STEPS / steps_per_execution)
    assert rates == [IMAGES / (executions * STEP_SECONDS)] * 3
    assert callback.steps == 2 * STEPS


@pytest.mark.parametrize("steps_per_execution", [1, 2])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_dataset_of_unknown_size(steps_per_execution):
    dataset = batches().filter(lambda *_: True)
    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    model = traced_model(steps_per_execution=steps_per_execution)
    rates, callback = fit(model=model, x=dataset)
    executions = math.ceil(STEPS / steps_per_execution)
    assert rates == [IMAGES / (executions * STEP_SECONDS)] * 3
    assert callback.images == 2 * IMAGES  # without the first epoch


def test_the_number_of_images_may_be_given():
    rates, callback = fit(total_images=30)
    assert rates == [20.0] * 3
    assert callback.images == 60


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
    assert (callback.images, callback.steps) == (0, 0)  # without the first epoch


def test_an_epoch_of_no_time_has_no_rate(capsys):
    """A clock may be too coarse for a short epoch."""
    history = tiny_fit([PrintThroughput(clock=lambda: 1.0)])
    assert all(map(math.isnan, history["images_per_sec"]))
    assert "Images/sec" not in capsys.readouterr().out


def test_the_state_holds_all_epochs_but_the_first():
    _, callback = fit(epochs=2)
    state = callback.get_state()
    assert state == {"images": IMAGES, "seconds": STEPS * STEP_SECONDS, "steps": STEPS}
    clock = FakeClock()
    resumed = PrintThroughput(clock=clock)
    resumed.set_state(state)
    tiny_fit([Ticker(clock), resumed], epochs=4, initial_epoch=2)
    assert resumed.images == 2 * IMAGES  # without the first epoch of each fit
    assert resumed.images / resumed.seconds == RATE


@pytest.mark.parametrize("total", [None, IMAGES])
def test_an_epoch_that_is_resumed_in_the_middle_counts_the_steps_of_its_process(total, tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:  # the first is saved
                raise KeyboardInterrupt

    model = traced_model()
    with pytest.raises(KeyboardInterrupt):
        checkpoint = Checkpoint(tmp_path, every_steps=1, verbose=0)
        tiny_fit([PrintThroughput(total), checkpoint, Interrupt()], model=model, epochs=1)
    clock = FakeClock()
    callback = PrintThroughput(total, clock=clock)
    checkpoint = Checkpoint(tmp_path, verbose=0)
    logs = tiny_fit([Ticker(clock), callback, checkpoint], model=model, epochs=1)
    left = IMAGES - BATCH if total is None else IMAGES * (STEPS - 1) / STEPS
    assert logs["images_per_sec"] == [pytest.approx(left / ((STEPS - 1) * STEP_SECONDS))]


@pytest.mark.parametrize("name", ["total_images", "every"])
def test_counts_that_are_refused(name):
    with pytest.raises(UserError, match=f"{name} is 0, but has to be an integer of at least 1"):
        PrintThroughput(**{name: 0})


# Lines every few steps


def lines_every(every, *, clock=None, callbacks=(), total_images=None, **options):
    clock = clock or FakeClock()
    callback = PrintThroughput(total_images, every=every, clock=clock)
    tiny_fit([Ticker(clock), callback, *callbacks], **options)
    return callback


def step_lines(capsys):
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("step ")]


def fresh_model(**options):
    """A model that does not learn, so that every step's loss is known."""
    model = tiny_model(**options)
    model.optimizer.learning_rate = 0.0
    kernel = np.zeros(model.layers[-1].kernel.shape)
    model.layers[-1].set_weights([kernel, np.array([0.0, 2.0])])
    return model


def expected_lines(every, epochs, classes):
    """Per epoch batches of 4, 4 and 2 images; the loss of an image depends on its class alone.

    A line is about the steps since the one before, or since the epoch began.
    """
    of_class = [math.log(1 + math.exp(2)), math.log(1 + math.exp(-2))]
    batches_of_epoch = [classes[at : at + BATCH] for at in range(0, len(classes), BATCH)]
    steps = batches_of_epoch * epochs
    lines = []
    for end in range(every, len(steps) + 1, every):
        begin = max(end - every, (end - 1) // len(batches_of_epoch) * len(batches_of_epoch))
        images = [one for batch in steps[begin:end] for one in batch]
        loss = sum(of_class[one] for one in images) / len(images)
        rate = len(images) / ((end - begin) * STEP_SECONDS)
        lines.append(
            f"step {end}, loss = {loss:.2f} ({rate:.1f} examples/sec; {STEP_SECONDS:.3f} sec/batch)"
        )
    return lines


CLASSES = [0, 0, 1, 0, 1, 1, 1, 0, 0, 0]


def of_classes():
    x = np.zeros((IMAGES, 3), "float32")
    return tf.data.Dataset.from_tensor_slices((x, np.array(CLASSES))).batch(BATCH)


@pytest.mark.parametrize("replicas", [None, 2])
def test_a_line_every_few_steps_over_epochs_and_replicas(replicas, capsys):
    model = fresh_model(replicas=replicas)
    for every in (1, 2, 5):
        model.optimizer.iterations.assign(0)
        lines_every(every, model=model, x=of_classes())
        assert step_lines(capsys) == expected_lines(every, 3, CLASSES)


def test_several_steps_in_one_execution_are_one_time(capsys):
    lines_every(2, model=fresh_model(steps_per_execution=3), x=of_classes(), epochs=2)
    # After steps 3 and 6, in which steps 2, 4 and 6 are.
    assert [line.partition(",")[0] for line in step_lines(capsys)] == ["step 3", "step 6"]


def test_steps_are_counted_on_in_another_fit(capsys):
    model = fresh_model()
    lines_every(3, model=model, x=of_classes(), epochs=1)
    lines_every(3, model=model, x=of_classes(), epochs=1)
    assert [line.partition(",")[0] for line in step_lines(capsys)] == ["step 3", "step 6"]


def test_a_resumed_training_prints_the_lines_of_the_same_steps(capsys, tmp_path):
    class KilledError(Exception):
        pass

    class KillAt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (self.model.optimizer.iterations == 5).numpy():
                raise KilledError

    def run(*more):
        model = fresh_model()
        clock = FakeClock()
        checkpoint = Checkpoint(tmp_path / "kept", every_steps=1, verbose=0)
        lines_every(2, clock=clock, model=model, x=of_classes(), callbacks=[checkpoint, *more])

    with pytest.raises(KilledError):
        run(KillAt())
    before = step_lines(capsys)
    run()
    lines, expected = [*before, *step_lines(capsys)], expected_lines(2, 3, CLASSES)
    # The line of step 6 has no step of before: the model was saved after step 5.
    del lines[2], expected[2]
    assert lines == expected


def test_a_given_number_of_images_and_an_own_step(capsys):
    lines_every(3, total_images=30, model=tiny_model(model_class=OwnStep), epochs=2)
    rate = 30 / (3 * STEP_SECONDS)
    lines = [line.partition("(")[2] for line in step_lines(capsys)]
    assert lines == [f"{rate:.1f} examples/sec; {STEP_SECONDS:.3f} sec/batch)"] * 2


def test_a_line_ends_the_line_of_a_progress_bar(capsys):
    lines_every(2, model=fresh_model(), x=of_classes(), epochs=1, verbose=1)
    out = capsys.readouterr().out
    assert "\nstep 2, loss = " in out
    lines_every(2, model=fresh_model(), x=of_classes(), epochs=1, verbose=2)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("step 2, loss = ")


# The count of images


@pytest.mark.parametrize("replicas", [1, 2])
def test_every_image_of_the_epoch_is_counted_once(replicas):
    model = traced_model(replicas=replicas)
    tiny_fit([], model=model, epochs=2, validate=False)
    assert count_images(model) == IMAGES


def test_sample_weights_do_not_change_the_count():
    model = tiny_model(weighted_metrics=["accuracy"])
    x, y = images()
    model.fit(x, y, sample_weight=np.linspace(0, 3, IMAGES), batch_size=4, verbose=0)
    assert count_images(model) == IMAGES


class OwnMetrics(keras.Model):
    @property
    def metrics(self):
        return [keras.metrics.Mean(name="loss")]


@pytest.mark.parametrize("model_class", [OwnStep, OwnMetrics])
def test_a_model_that_counts_otherwise_is_refused(model_class):
    with pytest.raises(UserError, match=rf"{model_class.__name__}.*own train_step.*total_images="):
        count_images(tiny_model(model_class=model_class))


@pytest.fixture
def float16():
    before = keras.config.floatx()
    keras.config.set_floatx("float16")
    yield
    keras.config.set_floatx(before)


@pytest.mark.usefixtures("float16")
def test_a_count_that_would_overflow_is_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(UserError, match="metrics in half precision"):
        count_images(model)


def test_an_epoch_cut_short_counts_what_it_had():
    class StopAtSecondStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    clock = FakeClock()
    callback = PrintThroughput(clock=clock)
    history = tiny_fit([Ticker(clock), StopAtSecondStep(), callback], validate=False)
    assert history["images_per_sec"] == [2 * BATCH / (2 * STEP_SECONDS)]


def test_steps_that_only_accumulate_gradients_are_counted(capsys):
    model = fresh_model()
    model.compile(
        keras.optimizers.SGD(0.0, gradient_accumulation_steps=2), "sparse_categorical_crossentropy"
    )
    lines_every(2, model=model, x=of_classes(), epochs=4)
    assert [line.partition(",")[0] for line in step_lines(capsys)] == [
        f"step {step}" for step in range(2, 13, 2)
    ]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_given_number_of_images_and_an_unknown_number_of_steps(capsys):
    """The line says nothing of images then."""
    data = of_classes().filter(lambda *_: True)
    lines_every(3, total_images=IMAGES, model=tiny_model(model_class=OwnStep), x=data, epochs=2)
    lines = [line.partition(" (")[2] for line in step_lines(capsys)]
    assert lines == [f"{STEP_SECONDS:.3f} sec/batch)"] * 2


def test_several_outputs_and_inputs_count_once():
    first, second = keras.Input((3,)), keras.Input((2,))
    joined = keras.layers.Concatenate()([first, second])
    model = keras.Model(
        [first, second], [keras.layers.Dense(1)(joined), keras.layers.Dense(2)(joined)]
    )
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
    data = [np.ones((7, 3)), np.ones((7, 2))]
    model.fit(data, [np.ones((7, 1)), np.ones((7, 2))], verbose=0)
    assert count_images(model) == 7


def test_a_step_put_on_the_model_itself_is_refused():
    model = tiny_model()
    model.train_step = tf.function(lambda data: {})
    with pytest.raises(UserError, match="its own train_step"):
        count_images(model)
