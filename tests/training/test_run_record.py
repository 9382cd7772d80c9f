import json

import pytest
from kdist.errors import UserError
from kdist.training.run_record import median_images_per_second, read_run, warm_images_per_second
from report_folders import write_run


def test_what_a_run_left(tmp_path):
    run = read_run(write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=16, replicas=2))
    assert run.name == "a"
    assert run.best == (0.9, 2)
    assert run.images_per_sec == 100.0  # without the first epoch
    assert (run.summary_number("met_epoch"), run.summary_number("met_seconds")) == (2, 20.0)
    assert run.summary_number("global_batch") == 32
    assert run.summary_number("data") is None
    assert run.known_values("val_loss")
    assert not run.known_values("batch_norm_gap")


def cut(folder, *files):
    for file in files:
        (folder / file).unlink()
    return folder


def test_a_run_that_was_killed_is_known_by_its_epochs(tmp_path):
    folder = cut(write_run(tmp_path / "a", (0.5, 0.9), batch_size=16, replicas=2), "summary.json")
    run = read_run(folder, unfinished=True)
    assert (run.is_finished, run.status) == (False, "unfinished")
    assert [run.summary_number(name) for name in ("replicas", "global_batch", "seconds")] == [
        2,
        32,
        20,
    ]
    assert (run.best, run.summary_number("val_accuracy")) == ((0.9, 2), 0.9)


@pytest.mark.parametrize("history", [None, "", "epoch,seconds\n"])
def test_a_run_that_was_killed_before_its_first_epoch_ended(tmp_path, history):
    folder = cut(write_run(tmp_path / "a", batch_size=16, replicas=2), "summary.json")
    (folder / "history.csv").unlink()
    if history is not None:
        (folder / "history.csv").write_text(history)
    run = read_run(folder, unfinished=True)
    assert (run.epochs, run.best, run.images_per_sec) == ([], None, None)


@pytest.mark.parametrize("unfinished", [False, True])
def test_without_its_settings_a_run_is_incomplete(tmp_path, unfinished):
    folder = cut(write_run(tmp_path / "a"), "config.json", "summary.json")
    with pytest.raises(UserError, match="incomplete: config.json"):
        read_run(folder, unfinished=unfinished)


def test_the_speed_of_a_first_epoch_is_cold(tmp_path):
    cold, warm = write_run(tmp_path / "cold", (0.5,)), write_run(tmp_path / "warm", (0.5, 0.6))
    assert (read_run(cold).images_per_sec, read_run(cold).is_warm) == (50.0, False)
    assert (read_run(warm).images_per_sec, read_run(warm).is_warm) == (110.0, True)
    text = (warm / "history.csv").read_text().replace("50.0", "", 1)
    (warm / "history.csv").write_text(text)
    assert read_run(warm).images_per_sec == 110.0  # it is still of the second epoch


def test_what_is_no_number_is_none(tmp_path):
    folder = write_run(tmp_path / "a", (0.5, 0.6), extra={"loss": ["nan", "inf"]})
    text = (folder / "history.csv").read_text().replace("110.0", "")
    (folder / "history.csv").write_text(text)
    run = read_run(folder)
    assert run.values("loss") == [None, None]
    assert run.values("images_per_sec") == [50.0, None]
    assert run.images_per_sec == 50.0


def test_a_run_without_an_epoch(tmp_path):
    run = read_run(write_run(tmp_path / "a", ()))
    assert (run.best, run.images_per_sec) == (None, None)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("summary.json", None, "incomplete: summary.json missing: the run was killed or is still"),
        ("history.csv", None, "incomplete: history.csv missing$"),
        ("config.json", "{", "config.json cannot be read"),
        ("config.json", "[1]", "config.json cannot be read"),
        ("history.csv", "a,b\n1,2\n", "history.csv lacks the column epoch or seconds"),
        ("history.csv", b"epoch,seconds\n\xff\xfe", "history.csv cannot be read"),
        ("history.csv", "", "history.csv lacks the column"),
    ],
)
def test_a_folder_that_will_not_do_says_why(tmp_path, file, content, words):
    path = write_run(tmp_path / "a") / file
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words):
        read_run(tmp_path / "a")


def test_a_line_cut_short_is_read_as_far_as_it_goes(tmp_path):
    folder = write_run(tmp_path / "a", (0.5, 0.6))
    text = (folder / "history.csv").read_text()
    (folder / "history.csv").write_text(text[: text.rindex(",0.6")])
    assert read_run(folder).values("val_accuracy") == [0.5, None]


def test_a_foreign_folder(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({}, "complete"),
        ({"diverged": None}, "complete"),
        ({"interrupted": True}, "interrupted"),
        ({"diverged": {"epoch": 4, "step": 17}}, "diverged"),
    ],
)
def test_how_a_run_ended(tmp_path, end, status):
    file = write_run(tmp_path / "a") / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | end))
    run = read_run(tmp_path / "a")
    assert run.status == status
    assert status != "diverged" or run.diverged_at == "epoch 4, step 17"


@pytest.mark.parametrize(
    ("by_epoch", "warm", "median"),
    [
        ([10.0, 90.0, 110.0], [90.0, 110.0], 100.0),
        ([10.0, 90.0], [90.0], 90.0),
        ([10.0], [10.0], 10.0),
        ([None, 90.0], [90.0], 90.0),
        ([10.0, None], [10.0], 10.0),
        ([], [], None),
    ],
)
def test_the_first_epoch_counts_only_where_it_is_alone(by_epoch, warm, median):
    assert warm_images_per_second(by_epoch) == warm
    assert median_images_per_second(by_epoch) == median
