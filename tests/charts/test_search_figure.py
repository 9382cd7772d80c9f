from kdist.charts.search import search_figure

VALUES = [
    {"rate": 0.0001, "optimizer": "sgd", "width": 1, "decay": None},
    {"rate": 0.1, "optimizer": "adam", "width": 2, "decay": 0.5},
    {"rate": 0.01, "optimizer": "sgd", "width": 4, "decay": 0.1},
]


def draw(scores, direction):
    correlations = {"rate": 0.5, "optimizer": None, "width": -1.0, "decay": None}
    (figure,), data = search_figure(
        "trials", "loss", scores, VALUES, correlations, direction=direction
    )
    return figure, data["trials"]


def test_the_best_score_so_far():
    assert [row["best"] for row in draw([2.0, 3.0, 1.0], "min")[1]] == [2, 2, 1]
    assert [row["best"] for row in draw([2.0, 3.0, 1.0], "max")[1]] == [2, 3, 3]
    assert draw([2.0, float("nan"), 1.0], "max")[1][1]["score"] is None


def test_a_view_for_each_hyperparameter():
    figure, rows = draw([2.0, 3.0, 1.0], "min")
    assert [one.label for one in figure.variants] == [
        "Trials in order",
        "rate (rank correlation +0.50)",
        "optimizer",
        "width (rank correlation -1.00)",
        "decay",
    ]
    axes = [one.chart.to_dict()["encoding"]["x"] for one in figure.variants[1:]]
    assert [axis["type"] for axis in axes] == [
        *("quantitative", "nominal", "quantitative", "nominal")
    ]
    assert [axes[at]["scale"]["type"] for at in (0, 2)] == ["log", "linear"]
    assert [rows[0][axis["field"]] for axis in axes] == [0.0001, "sgd", 1, "None"]
    assert figure.png({"trials": rows}).startswith(b"\x89PNG")
