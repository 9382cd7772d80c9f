import subprocess

import chromium
import pytest


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.delenv("CHROMIUM", raising=False)


def test_the_variable_wins(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/opt/mine")
    assert chromium.find_chromium(which=lambda name: name) == ("/opt/mine", "")
    path, reason = chromium.find_chromium(which=lambda name: None)
    assert (path, reason) == (None, "CHROMIUM=/opt/mine cannot be run")


def test_what_is_installed_is_taken():
    assert chromium.find_chromium(which={"google-chrome": "/bin/chrome"}.get)[0] == "/bin/chrome"


def apt_only(name):
    return "/usr/bin/apt-get" if name == "apt-get" else None


def test_only_root_installs():
    path, reason = chromium.find_chromium(which=apt_only, user=lambda: 1000)
    assert path is None
    assert reason.startswith("no Chromium: install it")


def test_root_installs_without_a_question():
    commands, installed = [], []

    def run(command, **options):
        commands.append(command)
        assert options["timeout"] <= 300
        assert options["stdin"] is subprocess.DEVNULL
        if "install" in command and "--download-only" not in command:
            installed.append("chromium")
        return subprocess.CompletedProcess(command, 0, "", "")

    def which(name):
        return f"/usr/bin/{name}" if name in ("apt-get", *installed) else None

    found = chromium.find_chromium(run=run, which=which, user=lambda: 0)
    assert found[0] == "/usr/bin/chromium"
    assert ["update" in command for command in commands] == [True, False, False]


@pytest.mark.parametrize("hangs", [True, False])
def test_without_a_network_a_word(hangs):
    def run(command, timeout, **options):
        if hangs:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 100, "", "E: some\nE: cannot resolve\n")

    path, reason = chromium.find_chromium(run=run, which=apt_only, user=lambda: 0)
    assert path is None
    words = "update took more than 60 seconds" if hangs else "update failed: E: cannot resolve"
    assert reason == f"no Chromium: apt-get {words}"
