"""What charts show, by their data and specifications."""

import math
import struct

import pytest
from kdist.charts.figures import (
    accuracy_figures,
    learning_curves,
    scaling_figures,
    search_figure,
    series_names,
    throughput_figures,
)
from kdist.report.studies import read_study
from kdist.training.record import read_run
from report_folders import (
    accuracy_rows,
    scaling_rows,
    speeds,
    throughput_rows,
    write_run,
    write_sweep,
)


def curves_of(*runs):
    (figure,) = learning_curves([read_run(run) for run in runs])
    return figure


def drawn(figure):
    """The columns of the vertical axes, in order."""
    found = []
    for view in figure.spec().get("concat", [figure.spec()]):
        for layer in view.get("layer", [view]):
            found.append(layer["encoding"].get("y", {}).get("field"))
    return found


def size(png):
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def test_the_curves_of_a_run(tmp_path):
    figure = curves_of(write_run(tmp_path / "a"))
    assert figure.id == "learning-curves"
    row = figure.data["epochs"][1]
    assert (row["run"], row["epoch"], row["val_accuracy"]) == ("a", 2, 0.8)
    assert drawn(figure)[:2] == ["val_accuracy", "val_accuracy"]  # by epoch and by seconds


def test_a_view_for_each_column_that_was_logged(tmp_path):
    extra = {"batch_norm_gap": [0.9, 0.4, 0.2]}
    plain, watched = write_run(tmp_path / "plain"), write_run(tmp_path / "watched", extra=extra)
    assert "batch_norm_gap" not in drawn(curves_of(plain))
    figure = curves_of(plain, watched)
    assert "batch_norm_gap" in drawn(figure)
    assert figure.data["epochs"][-1]["batch_norm_gap"] == 0.2


def test_an_epoch_without_a_value_has_a_row_without_it(tmp_path):
    history = write_run(tmp_path / "a", (0.5, 0.6)) / "history.csv"
    history.write_text(history.read_text().replace(",0.6,", ",,"))
    rows = curves_of(tmp_path / "a").data["epochs"]
    assert [row["val_accuracy"] for row in rows] == [0.5, None]


def test_a_run_of_which_nothing_is_known_is_not_drawn(tmp_path):
    run = write_run(tmp_path / "a")
    for file in ("summary.json", "history.csv"):
        (run / file).unlink()
    assert learning_curves([read_run(run, unfinished=True)]) == []


def test_a_picture_has_the_caption_and_the_note(tmp_path):
    figure = curves_of(write_run(tmp_path / "a"))
    short, long = size(figure.png()), size(figure.png(of="WRN", note="word " * 100))
    assert long[0] == short[0]
    assert long[1] > short[1]


def measured(folder, kind, rows):
    study = read_study(write_sweep(folder, kind, rows))
    return study.experiment.summarize(study.done, study.settings)


def test_the_fit_of_a_throughput_sweep_goes_through_its_points(tmp_path):
    (figure,) = throughput_figures(measured(tmp_path / "s", "throughput", throughput_rows()[:8]))
    for row in figure.data["medians"]:
        near = min(
            (one for one in figure.data["dashed"] if one["series"] == row["series"]),
            key=lambda one: abs(one["x"] - row["x"]),
        )
        # The rows are made of 50 ms a step and 2 ms an image.
        images = near["x"] * int(row["series"][-1])
        assert near["milliseconds"] == pytest.approx(50 + 2 * images, rel=1e-3)


def test_an_epoch_that_the_batch_does_not_divide_has_smaller_steps(tmp_path):
    rows = [
        {
            "name": f"b{batch}",
            "batch_size": batch,
            "replicas": 1,
            "global_batch": batch,
            "round": 1,
            "images_per_step": images,
        }
        | speeds(images / (0.05 + 0.002 * images))
        for batch, images in ((8, 8.0), (16, 16.0), (700, 512.0))
    ]
    summary = measured(tmp_path / "s", "throughput", rows)
    (fit,) = summary["fits"]
    assert fit["overhead_seconds"]["median"] == pytest.approx(0.05)
    last = throughput_figures(summary)[0].data["medians"][-1]
    assert last["milliseconds"] == pytest.approx(1000 * (0.05 + 0.002 * 512))


def test_accuracy_and_time_to_target_have_bars(tmp_path):
    (figure,) = accuracy_figures(measured(tmp_path / "s", "accuracy", accuracy_rows()))
    medians = {(row["series"], row["x"]): row for row in figure.data["medians"]}
    found = medians["lr rule linear", 32]
    assert (found["seconds"], found["seconds_low"], found["seconds_high"]) == (29, 28, 30)
    assert medians["lr rule none", 64]["seconds"] is None  # fewer than half got there
    assert found["accuracy_high"] == pytest.approx(0.895)
    never = [row | {"reached_target": False} for row in accuracy_rows()]
    (figure,) = accuracy_figures(measured(tmp_path / "t", "accuracy", never))
    assert set(drawn(figure)) == {"accuracy", "accuracy_low"}


def test_scaling_against_the_ideal(tmp_path):
    (figure,) = scaling_figures(measured(tmp_path / "s", "scaling", scaling_rows()))
    efficiency = [row["efficiency"] for row in figure.data["medians"]]
    assert efficiency == pytest.approx([1.0, 0.9, 0.81])
    ideal = [row["images_per_sec"] for row in figure.data["dashed"]]
    assert ideal == pytest.approx([101.0, 202.0, 404.0])  # the median of 100 and 102


def test_series_are_named_after_what_varies():
    settings = [{"replicas": r, "lr_rule": rule} for r in (1, 2) for rule in ("linear", "sqrt")]
    assert series_names(settings, ["lr_rule", "replicas"])[:2] == [
        "lr rule linear, replicas 1",
        "lr rule sqrt, replicas 1",
    ]
    assert series_names(settings[:1], ["lr_rule"]) == ["measured"]


VALUES = [
    {"a.rate": 0.0001, "optimizer": "sgd", "width": 1, "decay": None, "depth": 16},
    {"a.rate": 0.1, "optimizer": "adam", "width": 2, "decay": 0.5, "depth": 16},
    {"a.rate": 0.01, "optimizer": "sgd", "width": 4, "decay": 0.1},
]


def search(scores, *, better=min, outcomes=("trial",) * 3, log=("a.rate",)):
    trials = [
        {"trial": number, "outcome": outcome, "score": score, "values": values}
        for number, (outcome, score, values) in enumerate(
            zip(outcomes, scores, VALUES, strict=True)
        )
    ]
    return search_figure("loss", trials, better=better, log=log)


@pytest.mark.parametrize(
    ("scores", "better", "best"),
    [
        ([2.0, 3.0, 1.0], min, [2, 2, 1]),
        ([2.0, 3.0, 1.0], max, [2, 3, 3]),
        ([math.nan, None, 1.0], max, [None, None, 1]),
    ],
)
def test_the_best_score_so_far(scores, better, best):
    rows = search(scores, better=better).data["trials"]
    assert [row["best"] for row in rows] == best


def test_a_view_for_each_hyperparameter_that_varied():
    figure = search([2.0, 3.0, 1.0])
    views = figure.spec()["concat"]
    axes = [view.get("layer", [view])[-1]["encoding"]["x"] for view in views]
    assert [axis["title"] for axis in axes] == [
        *("Trial", "a.rate", "optimizer", "width", "decay", "depth"),
    ]
    assert [axis["type"] for axis in axes[1:]] == [
        *("quantitative", "nominal", "quantitative", "nominal", "nominal")
    ]
    assert [axis.get("scale", {}).get("type") for axis in axes[1:]] == [
        "log",
        None,
        None,
        None,
        None,
    ]
    first = figure.data["trials"][0]
    assert [first[axis["field"]] for axis in axes[1:]] == [0.0001, "sgd", 1, "None", 16]


def test_scores_of_trials_that_missed_the_target_are_on_a_logarithmic_scale():
    figure = search([2.0, None, 1.0], outcomes=("trial", "failed", "missed the target"))
    for view in figure.spec()["concat"]:
        points = view.get("layer", [view])[-1]
        assert points["encoding"]["y"]["scale"] == {"type": "log"}
    assert figure.png().startswith(b"\x89PNG")
