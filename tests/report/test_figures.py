import pytest
from kdist.report.inputs import find_sources
from kdist.report.report import make_report
from report_folders import (
    accuracy_rows,
    scaling_rows,
    speeds,
    throughput_rows,
    write_run,
    write_sweep,
)


def report_of(*paths, **options):
    return make_report(find_sources([str(path) for path in paths]), **options)


def ids(report):
    return [figure.id for figure in report.figures]


def test_a_run_has_curves_and_a_speed(tmp_path):
    report = report_of(write_run(tmp_path / "a"))
    assert ids(report) == ["learning-curves", "accuracy-over-time", "run-speeds"]
    row = report.data["epochs"][1]
    assert (row["run"], row["epoch"], row["val_accuracy"]) == ("a", 2, 0.8)
    assert report.data["speeds"][0] | {"low": 90.0, "high": 110.0} == report.data["speeds"][0]


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
    assert ids(report) == ["sweep-1-throughput"]
    fit = report.data["sweep-1-throughput-fit"]
    for row in report.data["sweep-1-throughput-medians"]:
        near = min(
            (one for one in fit if one["series"] == row["series"]),
            key=lambda one: abs(one["batch"] - row["batch"]),
        )
        # The rows are made of 50 ms a step and 2 ms an image.
        images = near["batch"] * int(row["series"][0])
        assert near["milliseconds"] == pytest.approx(50 + 2 * images, rel=1e-3)
    titles = [table.title for table in report.sections[0].tables]
    assert titles == ["Speed", "Fitted step time"]
    fitted = [cell.text for cell in report.sections[0].tables[1].rows[0][1:]]
    # Doubling b gains under 5 % where overhead / (overhead + 2 b / rate) is: b = 9.5 * 25 images.
    assert fitted == ["50.0", "500", "238"]


def test_the_fit_comes_with_the_fits_of_its_rounds(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "throughput", throughput_rows(rounds=2)))
    overhead = report.sections[0].tables[1].rows[0][1].text
    # The second round is 10 % slower.
    assert overhead.endswith(" (50.0 to 55.0)")
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
        }
        | speeds(images / (0.05 + 0.002 * images))
        for batch, images in ((8, 8.0), (16, 16.0), (700, 512.0))
    ]
    report = report_of(write_sweep(tmp_path / "s", "throughput", rows))
    fit = report.sections[0].tables[1].rows[0]
    assert [cell.text for cell in fit[1:3]] == ["50.0", "500"]
    last = report.data["sweep-1-throughput-medians"][-1]
    assert last["milliseconds"] == pytest.approx(1000 * (0.05 + 0.002 * 512))


def test_accuracy_and_time_to_target_of_a_sweep(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "accuracy", accuracy_rows()))
    assert ids(report)[:3] == ["sweep-1-accuracy", "sweep-1-best-accuracy", "sweep-1-curves"]
    medians = {
        (row["series"], row["global_batch"]): row for row in report.data["sweep-1-accuracy-medians"]
    }
    assert medians[("rule linear", 32)]["seconds"] == 29.0
    assert medians[("rule none", 64)]["seconds"] is None  # fewer than half got there
    [cells] = [row for row in report.sections[0].tables[0].rows if row[0].text == "64"][1:]
    assert [cell.text for cell in cells][2:5] == ["none", "1 of 3", "more than half never"]
    against_the_batch = report.figures[0].variants[0].chart.to_dict()["layer"]
    ends = [layer["encoding"]["y2"]["field"] for layer in against_the_batch if "y2" in str(layer)]
    assert ends == ["seconds_low"]  # three seeds do not show the upper end
    curves = report.data["sweep-1-accuracy-curves"]
    assert "batch 128, rule none" not in {row["series"] for row in curves}
    curve = [row for row in curves if row["series"] == "batch 32, rule linear"]
    assert [row["seconds"] for row in curve] == [0, 28, 29, 30]
    assert [row["share"] for row in curve] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert report.figures[2].variants[0].label == "Batch 32, rule linear"


@pytest.mark.parametrize(("noise", "shown"), [(100.0, True), (1.0, False), (1e4, False)])
def test_a_noise_scale_far_from_the_batches_does_not_squeeze_them(tmp_path, noise, shown):
    rows = [row | {"noise_scale": noise} for row in accuracy_rows()]
    report = report_of(write_sweep(tmp_path / "s", "accuracy", rows))
    assert ("noise scale" in str(report.figures[0].page_specs())) is shown


def test_scaling_against_the_ideal(tmp_path):
    report = report_of(write_sweep(tmp_path / "s", "scaling", scaling_rows()))
    medians = report.data["sweep-1-scaling-medians"]
    assert [row["efficiency"] for row in medians] == pytest.approx([1.0, 0.9, 0.81])
    ideal = [row["images_per_sec"] for row in report.data["sweep-1-scaling-ideal"]]
    assert ideal == pytest.approx([101.0, 202.0, 404.0])  # the median of 100 and 102


@pytest.mark.parametrize(
    ("kind", "rows"), [("throughput", throughput_rows), ("scaling", scaling_rows)]
)
def test_replicas_that_share_cores_are_warned_of(tmp_path, kind, rows):
    gpus = {"cpu": "x", "devices": ["GPU:0 x", "GPU:1 x"]}
    cores = report_of(write_sweep(tmp_path / "cores", kind, rows()))
    assert "do not measure a speed-up" in cores.sections[0].lead
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
        assert [table.title for table in report.sections[0].tables] == ["Points that are not shown"]


def test_typed_numbers_of_one_batch_have_no_fit(tmp_path):
    (tmp_path / "lab.csv").write_text("batch_size,images_per_sec\n32,100\n32,110\n")
    report = report_of(tmp_path / "lab.csv")
    assert ids(report) == ["numbers-1-throughput"]
    assert report.data["numbers-1-throughput-fit"] == []
    assert len(report.data["numbers-1-throughput-points"]) == 2


def test_many_runs_show_the_best_first(tmp_path):
    for n in range(12):
        write_run(tmp_path / f"r{n:02}", (0.1, 0.5 + n / 100))
    report = report_of(tmp_path)
    assert report.shown == [f"r{n:02}" for n in range(2, 12)]
    # Those that are shown have a colour each.
    assert report.by_colour == [*report.shown, "r00", "r01"]
    assert report.run_names[0] == "r00"
    assert report.title == "12 runs of WRN-16-10"


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
    assert list(pngs) == [
        "sweep-1-throughput-images-per-second.png",
        "sweep-1-throughput-milliseconds-per-step.png",
    ]
    assert all(png.startswith(b"\x89PNG") for png in pngs.values())
