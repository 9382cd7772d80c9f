import os
import subprocess
import sys

import pytest
from kdist.performance import onednn
from kdist.performance.hardware import cpu_flags

AVX2 = "processor : 0\nflags\t\t: fpu sse avx avx2 f16c fma\n"


@pytest.fixture
def undecided(monkeypatch):
    monkeypatch.delenv(onednn.VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow")


def enabled(tmp_path, text):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    onednn.enable_onednn(path)
    return os.environ.get(onednn.VARIABLE)


def test_on_where_the_cpu_has_the_instructions(undecided, tmp_path):
    assert enabled(tmp_path, AVX2) == "1"


@pytest.mark.parametrize("text", ["flags : fpu sse avx", "Features : fp asimd", ""])
def test_left_alone_elsewhere(undecided, tmp_path, text):
    assert enabled(tmp_path, text) is None


@pytest.mark.parametrize(
    ("flags", "on"), [("avx2 fma", False), ("avx512f", False), ("avx512_vnni", True)]
)
def test_tensorflows_default(flags, on, tmp_path):
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
    assert onednn.is_on_by_default(tmp_path / "cpuinfo") is on


def test_left_alone_where_nothing_tells(undecided, tmp_path):
    onednn.enable_onednn(tmp_path / "missing")
    assert onednn.VARIABLE not in os.environ


def test_what_the_user_chose_stays(undecided, tmp_path, monkeypatch):
    monkeypatch.setenv(onednn.VARIABLE, "0")
    assert enabled(tmp_path, AVX2) == "0"


def test_too_late_once_tensorflow_is_imported(tmp_path, monkeypatch):
    monkeypatch.delenv(onednn.VARIABLE, raising=False)
    assert enabled(tmp_path, AVX2) is None


def test_importing_kdist_first_decides():
    code = f"import kdist, os; print(os.environ.get({onednn.VARIABLE!r}) == '1')"
    environment = {k: v for k, v in os.environ.items() if k != onednn.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(cpu_flags() >= {"avx2", "fma"})]
