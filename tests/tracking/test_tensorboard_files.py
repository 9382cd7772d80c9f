"""Event files against TensorFlow's own reader."""

import logging

import numpy as np
import pytest
import tensorflow as tf
from kdist.tracking.tensorboard_tracker import last_step

NEVER = 2**40  # of an event that is no summary


def write(folder, steps, *, more=()):
    """A file of one process; returns its path."""
    before = set(folder.glob("events*"))
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in steps:
            tf.summary.scalar("loss", 0.5, step)
            tf.summary.histogram("weights", np.arange(9.0), step)
        for step in more:
            tf.summary.text("about", "text", step)
    writer.close()
    (path,) = set(folder.glob("events*")) - before
    return path


def by_tensorflow(path):
    logging.getLogger("tensorflow").disabled = True  # it is deprecated
    try:
        events = [*tf.compat.v1.train.summary_iterator(str(path))]
    finally:
        logging.getLogger("tensorflow").disabled = False
    return max((one.step for one in events if one.WhichOneof("what") == "summary"), default=-1)


@pytest.mark.parametrize("steps", [[], [0], [1, 2, 3], [0, 127, 128, 300_000, 2**33], [5, 4]])
def test_the_last_step_of_a_file(steps, tmp_path):
    path = write(tmp_path, steps)
    assert last_step(tmp_path) == by_tensorflow(path) == max(steps, default=-1)


def test_a_missing_folder_and_a_file_that_ends_amid_a_record(tmp_path, caplog):
    assert last_step(tmp_path / "missing") == -1
    path = write(tmp_path, [1, 2, 3])
    content = path.read_bytes()
    found = set()
    for size in range(len(content), -1, -1):
        path.write_bytes(content[:size])
        found.add(last_step(tmp_path))
    assert found == {3, 2, 1, -1}
    assert not caplog.records


def test_the_newest_file_is_enough_unless_it_has_only_what_is_written_at_step_0(tmp_path):
    older = write(tmp_path, [1, 2, 7]).rename(tmp_path / "events.out.tfevents.1.host")
    newer = write(tmp_path, [], more=[0]).rename(tmp_path / "events.out.tfevents.2.host")
    assert last_step(tmp_path) == 7
    newer.unlink()
    write(tmp_path, [8, 9]).rename(tmp_path / "events.out.tfevents.3.host")
    older.write_bytes(b"not read")
    assert last_step(tmp_path) == 9


def test_an_event_that_is_no_summary_has_no_step(tmp_path):
    path = tmp_path / "events.out.tfevents.1.host"
    events = [
        tf.compat.v1.Event(wall_time=1.5, step=3, summary=tf.compat.v1.Summary()),
        tf.compat.v1.Event(wall_time=1.5, step=NEVER, graph_def=b"graph"),
        tf.compat.v1.Event(step=4, summary=tf.compat.v1.Summary()),  # without a time
    ]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for event in events:
            writer.write(event.SerializeToString())
    assert last_step(tmp_path) == 4


def test_all_files_of_the_newest_second_are_read(tmp_path):
    for number, steps in ((9, [1, 2]), (10, [3, 4]), (8, [0])):
        write(tmp_path, steps).rename(tmp_path / f"events.out.tfevents.5.host.1.{number}.v2")
    assert last_step(tmp_path) == 4
