import pytest
from kdist.charts.search import COMPLETED, FAILED, MISSED, TrialPoint, search_figure

VALUES = [
    {"rate": 0.0001, "optimizer": "sgd", "width": 1, "decay": None, "depth": 16},
    {"rate": 0.1, "optimizer": "adam", "width": 2, "decay": 0.5, "depth": 16},
    {"rate": 0.01, "optimizer": "sgd", "width": 4, "decay": 0.1, "depth": 16},
]
CORRELATIONS = {"rate": 0.5, "optimizer": None, "width": -1.0, "decay": None, "depth": None}


def draw(scores, direction, outcomes=(COMPLETED,) * 3, log=("rate",)):
    trials = [
        TrialPoint(number=number, outcome=outcome, score=score, values=values)
        for number, (score, outcome, values) in enumerate(
            zip(scores, outcomes, VALUES, strict=True), start=1
        )
    ]
    (figure,), data = search_figure(
        "trials", "WRN-16-1", "loss", trials, CORRELATIONS, direction=direction, log=log
    )
    return figure, data["trials"]


def views(figure):
    return {one.label.split(" (")[0]: one.chart.to_dict() for one in figure.variants}


def test_the_best_score_so_far():
    assert [row["best"] for row in draw([2.0, 3.0, 1.0], "min")[1]] == [2, 2, 1]
    assert [row["best"] for row in draw([2.0, 3.0, 1.0], "max")[1]] == [2, 3, 3]
    rows = draw([2.0, None, 1.0], "max", (COMPLETED, FAILED, COMPLETED))[1]
    assert [row["best"] for row in rows] == [2, 2, 2]
    assert draw([float("nan"), 2.0, 1.0], "max")[1][0]["best"] is None


def test_a_view_for_each_hyperparameter_that_varied():
    figure, rows = draw([2.0, 3.0, 1.0], "min")
    assert [one.label for one in figure.variants] == [
        "Trials in order",
        "rate (rank correlation +0.50)",
        "optimizer",
        "width (rank correlation -1.00)",
        "decay",
    ]
    axes = [one.chart.to_dict()["layer"][0]["encoding"]["x"] for one in figure.variants[1:]]
    assert [axis["type"] for axis in axes] == [
        *("quantitative", "nominal", "quantitative", "nominal")
    ]
    assert [rows[0][axis["field"]] for axis in axes] == [0.0001, "sgd", 1, "None"]
    assert figure.png({"trials": rows}, note="A note.").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("log", "scales"), [(["rate"], ["log", "linear"]), (["width"], ["linear", "log"])]
)
def test_an_axis_is_logarithmic_where_the_search_drew_so(log, scales):
    figure, _ = draw([2.0, 3.0, 1.0], "min", log=log)
    found = [
        views(figure)[name]["layer"][0]["encoding"]["x"]["scale"].get("type", "linear")
        for name in ("rate", "width")
    ]
    assert found == scales


def test_trials_that_failed_are_at_the_lower_edge_of_every_view():
    figure, rows = draw([2.0, None, 1.0], "min", (COMPLETED, FAILED, MISSED))
    assert [row["outcome"] for row in rows] == [COMPLETED, FAILED, MISSED]
    for spec in views(figure).values():
        failed = spec["layer"][-1]
        assert failed["encoding"]["y"] == {"value": "height"}
        assert failed["transform"][-1] == {"filter": f"datum.outcome === '{FAILED}'"}
        assert failed["encoding"]["shape"]["scale"]["range"] == [
            *("circle", "cross", "circle", "triangle-up")
        ]
    assert "failed" in figure.caption
    assert "missed the target" in figure.caption
    whole, _ = draw([2.0, 3.0, 1.0], "min")
    assert "failed" not in whole.caption


def test_a_hyperparameter_that_a_trial_does_not_have_is_not_drawn():
    trials = [
        TrialPoint(number=1, outcome=COMPLETED, score=1.0, values={"units": 4}),
        TrialPoint(number=2, outcome=COMPLETED, score=2.0, values={"units": 8}),
        TrialPoint(number=3, outcome=COMPLETED, score=3.0, values={}),
    ]
    (figure,), data = search_figure("t", "m", "loss", trials, {"units": None}, direction="min")
    axis = views(figure)["units"]["layer"][0]["encoding"]["x"]
    assert axis["type"] == "quantitative"
    assert [axis["field"] in row for row in data["t"]] == [True, True, False]
