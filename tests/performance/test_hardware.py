import platform

from kdist.performance.hardware import device_names


def test_every_device_has_a_name():
    names = device_names(("CPU:0", "CPU:1"))
    assert names[0] == names[1]
    assert names[0]


def test_without_proc_the_architecture_is_told(monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: "nothing of use")
    assert device_names(("CPU:0",)) == [platform.machine()]
