import subprocess
import sys

import kdist.cli
import pytest
from report_folders import throughput_rows, write_run, write_sweep


def test_a_mistake_is_one_line_and_exit_2_before_charts_are_imported(tmp_path):
    code = (
        "import sys\nsys.argv = ['kdist', 'report', sys.argv[1]]\n"
        "from kdist.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print('CODE', end.code)\n"
        "heavy = ('tensorflow', 'keras', 'scipy', 'altair', 'vl_convert')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "no")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["CODE 2", "[]"]
    assert done.stderr.startswith("kdist: error: cannot read ")
    assert done.stderr.count("\n") == 1


def test_a_sweep_and_a_run_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kdist.charts.figure.Figure.pngs", lambda figure, data: {})
    sweep = write_sweep(tmp_path / "s", "throughput", throughput_rows())
    runs = [write_run(tmp_path / name, width=at) for at, name in enumerate("ab", start=1)]
    output = tmp_path / "mine.html"
    given = ["kdist", "report", str(sweep), *map(str, runs)]
    monkeypatch.setattr("sys.argv", [*given, "--output", str(output), "--baseline", "b"])
    with pytest.raises(SystemExit) as end:
        kdist.cli.main()
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"Report: {output}")
    page = output.read_text()
    for words in ("1 sweep and 2 runs", "Sweep s", "Baseline: b.", "Fitted step time"):
        assert words in page
