import pytest
from kdist.report.inputs import find_sources
from kdist.report.report import make_report
from report_folders import accuracy_rows, scaling_rows, throughput_rows, write_run, write_sweep


def report_of(*paths, **options):
    return make_report(find_sources([str(path) for path in paths]), **options)


def ids(report):
    return [figure.id for figure in report.figures]


def test_a_run_has_curves_and_a_speed(tmp_path):
    report = report_of(write_run(tmp_path / "a"))
    assert ids(report) == ["learning-curves", "accuracy-over-time", "run-speeds"]
    row = report.data["epochs"][1]
    assert (row["run"], row["epoch"], row["val_accuracy"]) == ("a", 2, 0.8)
    assert report.data["speeds"][0] | {"least": 90.0, "most": 110.0} == report.data["speeds"][0]


def test_batch_norm_gaps_and_noise_scale_where_logged(tmp_path):
    extra = {
        "batch_norm_gap": [0.9, 0.4, 0.2],
        "batch_norm_replica_gap": [0, 0, 0],
        "gradient_noise_scale": [100.0, 200.0, 300.0],
    }
    plain, watched = write_run(tmp_path / "plain"), write_run(tmp_path / "watched", extra=extra)
    assert not {"batch-norm-gaps", "noise-scale"} & set(ids(report_of(plain)))
    report = report_of(plain, watched)
    gaps, noise = (
        next(figure for figure in report.figures if figure.id == name)
        for name in ("batch-norm-gaps", "noise-scale")
    )
    assert len(gaps.variants) == 2
    assert "watched: 0.2 after the last epoch" in gaps.alt
    assert "watched: 300 after the last epoch" in noise.alt
    assert report.data["epochs"][-1]["gradient_noise_scale"] == 300


def test_the_fit_of_a_throughput_sweep_goes_through_its_points(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "throughput", throughput_rows(rounds=1)))
    assert ids(report) == ["sweep-1"]
    fit = report.data["sweep-1-fit"]
    for row in report.data["sweep-1-medians"]:
        near = min(
            (one for one in fit if one["series"] == row["series"]),
            key=lambda one: abs(one["batch"] - row["batch"]),
        )
        # The rows are made of 50 ms a step and 2 ms an image.
        images = near["batch"] * row["replicas"]
        assert near["milliseconds"] == pytest.approx(50 + 2 * images, rel=1e-3)
    titles = [table.title for table in report.sections[0].tables]
    assert titles == ["Results", "Fitted step time"]
    overhead, most, batch = (cell.text for cell in report.sections[0].tables[1].rows[0][1:])
    # Doubling b gains under 5 % where overhead / (overhead + 2 b / rate) is: b = 9.5 * 25 images.
    assert (overhead, most, batch) == ("50", "500", "238")


def test_the_fit_comes_with_the_fits_of_its_rounds(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "throughput", throughput_rows(rounds=2)))
    overhead = report.sections[0].tables[1].rows[0][1].text
    # The second round is 10 % slower.
    assert overhead.endswith(" (50 to 55)")
    assert 50 < float(overhead.split()[0]) < 55


def test_an_epoch_that_the_batch_does_not_divide_has_smaller_steps(tmp_path):
    rows = [
        {
            "name": f"b{batch}",
            "batch_size": batch,
            "replicas": 1,
            "global_batch": batch,
            "round": 1,
            "images_per_step": images,
            "images_per_sec": images / (0.05 + 0.002 * images),
        }
        for batch, images in ((8, 8.0), (16, 16.0), (700, 512.0))
    ]
    report = report_of(write_sweep(tmp_path / "s", "throughput", rows))
    results, fit = report.sections[0].tables
    assert [cell.text for cell in fit.rows[0][1:3]] == ["50", "500"]
    assert results.rows[-1][-1].text == f"{1000 * (0.05 + 0.002 * 512):.3g}"


def test_accuracy_and_time_to_target_of_a_sweep(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "accuracy", accuracy_rows()))
    assert ids(report)[:2] == ["sweep-1", "sweep-1-target"]
    times = {(row["series"], row["global_batch"]): row for row in report.data["sweep-1-times"]}
    assert times[("rule linear", 32)]["seconds"] == 29.0
    assert times[("rule none", 64)]["reached"] == "1 of 3"
    assert times[("rule none", 64)]["seconds"] is None  # fewer than half got there
    assert ("rule none", 128) not in times
    against_the_batch = report.figures[1].variants[0].chart.to_dict()["layer"]
    ends = [layer["encoding"]["y2"]["field"] for layer in against_the_batch[1:]]
    assert ends == ["low"]  # three seeds tell no upper end
    curve = [r for r in report.data["sweep-1-curves"] if r["series"] == "batch 32, rule linear"]
    assert [row["seconds"] for row in curve] == [0, 28, 29, 30]
    assert [row["share"] for row in curve] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_scaling_against_the_ideal(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "scaling", scaling_rows()))
    full = [row for row in report.data["sweep-1-medians"] if row["series"] == "full"]
    assert [row["efficiency"] for row in full] == pytest.approx([1.0, 0.9, 0.81])
    assert "leave it out of the step" in report.figures[0].caption


def test_what_one_replica_does_not_have_is_compared_with_its_full_step(tmp_path):
    def runs_alike(row):
        return row["variant"] == "full" or row["replicas"] > 1

    rows = [row for row in scaling_rows() if runs_alike(row)]
    report = report_of(write_sweep(tmp_path / "s", "scaling", rows))
    medians = report.data["sweep-1-medians"]
    shares = [row["efficiency"] for row in medians if row["series"] == "without collectives"]
    assert shares == pytest.approx([0.9 * 1.05, 0.81 * 1.05])


@pytest.mark.parametrize(
    ("kind", "rows"), [("throughput", throughput_rows), ("scaling", scaling_rows)]
)
def test_replicas_that_share_cores_are_warned_of(tmp_path, kind, rows):
    gpus = {"cpu": "x", "devices": ["GPU:0 x", "GPU:1 x"]}
    cores = report_of(write_sweep(tmp_path / "cores", kind, rows()))
    assert "no speed-up can be read out" in cores.sections[0].lead
    for name, machine, these in (
        ("gpus", gpus, rows()),
        ("one", {"devices": ["CPU:0 x"]}, [row for row in rows() if row["replicas"] == 1]),
        ("unknown", {"devices": None}, rows()),
    ):
        report = report_of(write_sweep(tmp_path / name, kind, these, machine=machine))
        assert "speed-up" not in report.sections[0].lead


def test_a_sweep_whose_points_all_failed(tmp_path):
    rows = [{"status": "failed", "error": "out of memory", "batch_size": 8, "replicas": 1}]
    for kind in ("throughput", "accuracy", "scaling"):
        report = report_of(write_sweep(tmp_path / kind, kind, rows))
        assert ids(report) == []
        assert [table.title for table in report.sections[0].tables] == ["Points that failed"]


def test_typed_numbers_of_one_batch_have_no_fit(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec\n32,100\n32,110\n")
    report = report_of(tmp_path / "lab.csv")
    assert ids(report) == ["numbers-1"]
    assert report.data["numbers-1-fit"] == []
    assert len(report.data["numbers-1-points"]) == 2


def test_many_runs_show_the_best_first(tmp_path):
    for n in range(12):
        write_run(tmp_path / f"r{n:02}", (0.1, 0.5 + n / 100))
    report = report_of(tmp_path)
    assert report.shown == [f"r{n:02}" for n in range(4, 12)]
    assert report.title == "12 runs"


def test_the_baseline_is_found_by_name_and_path(tmp_path):
    one, two = write_run(tmp_path / "a", width=1), write_run(tmp_path / "b", width=2)
    for baseline in ("b", str(two), f"{two}/"):
        report = report_of(one, two, baseline=baseline)
        assert report.sections[-1].tables[0].note.startswith("Baseline: b.")


def test_charts_come_as_png_and_as_specifications(tmp_path):
    extra = {"gradient_noise_scale": [1.0, 2.0, 3.0]}
    report = report_of(
        write_run(tmp_path / "a", extra=extra),
        write_sweep(tmp_path / "t", "throughput", throughput_rows()),
    )
    for figure in report.figures:
        assert figure.alt.strip()
        assert figure.caption.strip()
        assert [spec["width"] for spec in figure.page_specs()] == ["container"] * len(
            figure.variants
        )
    pngs = report.figures[0].pngs(report.data)
    assert list(pngs) == ["sweep-1-images-a-second.png", "sweep-1-milliseconds-a-step.png"]
    assert all(png.startswith(b"\x89PNG") for png in pngs.values())
