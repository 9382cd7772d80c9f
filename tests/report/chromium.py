"""Where the tests find Chromium: what is installed, else Debian's package."""

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Without a network these end within seconds.
_APT = (
    "-o",
    "Acquire::Retries=0",
    "-o",
    "Acquire::http::Timeout=10",
    "-o",
    "DPkg::Lock::Timeout=60",
)
_STEPS = (
    (("update", "-o", "APT::Update::Error-Mode=any"), 60),
    (("install", "--download-only", "--yes", "--no-install-recommends", "chromium"), 300),
    (("install", "--yes", "--no-install-recommends", "chromium"), 300),
)


def find_chromium(run=subprocess.run, which=shutil.which, user=os.geteuid):
    """Chromium's path, or the reason why there is none, as `(path, reason)`.

    `CHROMIUM` names it, where it is set. Otherwise it is looked for on the path; root has
    `apt-get` install it, without a question and within a time limit.
    """
    given = os.environ.get("CHROMIUM")
    if given:
        return (given, "") if which(given) else (None, f"CHROMIUM={given} cannot be run")
    found = next(filter(None, map(which, NAMES)), None)
    if found:
        return found, ""
    if not which("apt-get") or user() != 0:
        return None, "no Chromium: install it, or name it in the variable CHROMIUM"
    for step, seconds in _STEPS:
        command = ["apt-get", "--quiet", *_APT, *step]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = run(
                command,
                timeout=seconds,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return None, f"no Chromium: apt-get {step[0]} took more than {seconds} seconds"
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return None, f"no Chromium: apt-get {step[0]} failed: {last}"
    return which("chromium"), "no Chromium, though apt-get installed it"
