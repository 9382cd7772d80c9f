import csv

import keras
import pytest
from kdist.callbacks import PrintThroughput, SaveTrainingData
from kdist.callbacks.save_training_data import COLUMNS
from kdist.errors import UserError
from tiny_training import (
    BATCH,
    IMAGES,
    OTHER_CALLBACK_SECONDS,
    STEP_SECONDS,
    STEPS,
    VALIDATION_SECONDS,
    Accuracies,
    FakeClock,
    Ticker,
    tiny_fit,
    tiny_model,
    traced_model,
)

EPOCH_SECONDS = STEPS * STEP_SECONDS + VALIDATION_SECONDS + OTHER_CALLBACK_SECONDS


def fit(path, callbacks=(), state=None, **options):
    clock = FakeClock()
    saver = SaveTrainingData(path, clock=clock, verbose=0)
    if state is not None:
        saver.set_state(state)
    tiny_fit([Ticker(clock), *callbacks, saver], **options)
    return saver


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_line_an_epoch(replicas, tmp_path):
    path = tmp_path / "run.csv"
    fit(path, model=traced_model(replicas=replicas))
    rows = table(path)
    assert tuple(rows[0]) == COLUMNS
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [float(row["seconds"]) for row in rows] == [EPOCH_SECONDS * n for n in (1, 2, 3)]
    for row in rows:
        assert row["images_per_sec"] == ""
        assert float(row["accuracy"]) == float(row["val_accuracy"]) == 0.5
        assert float(row["loss"]) > 0 < float(row["val_loss"])
        assert float(row["learning_rate"]) == pytest.approx(0.01)
        assert (row["replicas"], row["global_batch"]) == (str(replicas), str(BATCH))


def test_images_per_second_are_those_of_print_throughput(tmp_path):
    path, clock = tmp_path / "run.csv", FakeClock()
    savers = [PrintThroughput(clock=clock, verbose=0), SaveTrainingData(path, clock=clock)]
    tiny_fit([Ticker(clock), *savers], epochs=1)
    (row,) = table(path)
    assert row["images_per_sec"] == f"{IMAGES / (STEPS * STEP_SECONDS):.1f}"


def test_other_values_follow_and_what_an_epoch_lacks_is_empty(tmp_path):
    path = tmp_path / "run.csv"
    fit(path, [Accuracies([0.1, None, 0.3], name="top_5")], validate=False)
    rows = table(path)
    assert tuple(rows[0]) == (*COLUMNS, "top_5")
    assert [row["top_5"] for row in rows] == ["0.1", "", "0.3"]
    assert {row["val_accuracy"] for row in rows} == {""}


def test_an_interrupted_run_leaves_its_lines_and_a_resumed_one_adds_to_them(tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise RuntimeError

    path, clock = tmp_path / "run.csv", FakeClock()
    saver = SaveTrainingData(path, clock=clock)
    with pytest.raises(RuntimeError):
        tiny_fit([Ticker(clock), saver, Fail()])
    assert [row["epoch"] for row in table(path)] == ["1", "2"]
    fit(path, state=saver.get_state(), initial_epoch=2)
    rows = table(path)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert float(rows[2]["seconds"]) == 3 * EPOCH_SECONDS


def test_a_run_that_begins_later_replaces_the_epochs_that_it_trains_again(tmp_path):
    """As after `keras.callbacks.BackupAndRestore`, which knows no callback's state."""
    path = tmp_path / "run.csv"
    fit(path, epochs=4)
    fit(path, initial_epoch=2, epochs=5)
    rows = table(path)
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [float(row["seconds"]) for row in rows] == [EPOCH_SECONDS * n for n in range(1, 6)]


def test_a_row_that_was_cut_short_is_written_again(tmp_path):
    path = tmp_path / "run.csv"
    fit(path)
    text = path.read_bytes()
    saver = fit(path, epochs=2)
    path.write_bytes(text[:-7])  # in its last number
    fit(path, state=saver.get_state(), initial_epoch=2)
    assert path.read_bytes() == text


def test_rows_that_a_resumed_run_knows_nothing_of_are_written_again(tmp_path):
    """As after a checkpoint from before a row, in the first epoch too."""
    path = tmp_path / "run.csv"
    before = SaveTrainingData(path).get_state()
    fit(path)
    text = path.read_bytes()
    fit(path, state=before)
    assert path.read_bytes() == text


def test_a_value_that_comes_later_widens_the_table(tmp_path):
    path = tmp_path / "run.csv"
    fit(path, [Accuracies([None, 0.2, None], name="val_top_5")], validate=False)
    assert [row["val_top_5"] for row in table(path)] == ["", "0.2", ""]


def test_a_new_fit_begins_a_new_table(tmp_path):
    path = tmp_path / "run.csv"
    fit(path)
    fit(path, epochs=1)
    assert len(table(path)) == 1


def test_a_resumed_run_does_not_add_to_a_file_of_another_kind(tmp_path):
    path = tmp_path / "run.csv"
    saver = fit(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="does not begin with the columns"):
        fit(path, state=saver.get_state(), initial_epoch=1)
    assert path.read_text() == "a,b\n1,2\n"


def test_a_file_that_cannot_be_written_is_told_before_an_epoch(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*No such file.*folder that exists"):
        fit(tmp_path / "missing" / "run.csv")
    with pytest.raises(UserError, match="Is a directory"):
        fit(tmp_path)


@pytest.mark.parametrize("steps_per_execution", [2, 4])
def test_several_steps_in_one_execution(steps_per_execution, tmp_path):
    path = tmp_path / "run.csv"
    fit(path, model=traced_model(steps_per_execution=steps_per_execution), epochs=1)
    assert table(path)[0]["global_batch"] == str(BATCH)


def test_a_schedules_rate(tmp_path):
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([STEPS - 1], [0.5, 0.25])
    model = tiny_model()
    model.compile(keras.optimizers.SGD(decay), "sparse_categorical_crossentropy")
    fit(tmp_path / "run.csv", model=model, epochs=1)
    assert float(table(tmp_path / "run.csv")[0]["learning_rate"]) == 0.25
