import json
import math

import pytest
from kdist.errors import UserError
from kdist.runs.run_record import read_run
from report_folders import write_run


def test_what_a_run_left(tmp_path):
    run = read_run(write_run(tmp_path / "a", (0.5, 0.9, 0.8), batch_size=16, replicas=2))
    assert run.name == "a"
    assert run.best == (0.9, 2)
    assert run.rates == [110.0, 90.0]  # without the first epoch
    assert run.images_per_sec == 100.0
    assert (run.met.epoch, run.met.seconds) == (2, 20.0)
    assert run.fact("global_batch") == 32
    assert run.fact("data") is None
    assert run.logged("val_loss")
    assert not run.logged("batch_norm_gap")


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
    assert (run.best, run.met, run.images_per_sec) == (None, None, None)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("summary.json", None, "half-written: summary.json is missing"),
        ("history.csv", None, "half-written: history.csv is missing"),
        ("config.json", "{", "unreadable: config.json is no JSON"),
        ("config.json", "[1]", "foreign: config.json holds a list"),
        ("summary.json", '{"loss": 1}', "foreign: its summary.json lacks replicas"),
        ("summary.json", "[" * 100_000, "unreadable: summary.json"),
        ("history.csv", "a,b\n1,2\n", "foreign: history.csv has no columns epoch and seconds"),
        ("history.csv", "epoch,seconds\n1,2,3\n", "unreadable: a line of history.csv"),
        ("history.csv", b"epoch,seconds\n\xff\xfe", "unreadable: history.csv is no table"),
        ("history.csv", "", "foreign: history.csv"),
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
    with pytest.raises(UserError, match="no run folder"):
        read_run(tmp_path)


def test_settings_of_other_kinds_do_no_harm(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "config.json").write_text(
        json.dumps({"target_accuracy": "high", "patience": math.inf})
    )
    assert read_run(folder).met is None
