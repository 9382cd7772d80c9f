"""Versions: are they those that kdist was tested with?"""

import importlib.metadata
import platform
from collections.abc import Callable, Sequence

from ..versions import untested
from .finding import Finding

_SEPARATE = ("tensorflow", "keras")  # which have lines of their own, as they are imported


def find_python(requires: str | None = None, version: str | None = None) -> Finding:
    """Is this version of Python one that kdist takes?

    Args:
        requires: The versions, as in `Requires-Python`; by default those of the installed kdist.
        version: By default the one that runs.
    """
    from packaging.specifiers import SpecifierSet

    running = version or platform.python_version()
    allowed = requires or importlib.metadata.metadata("kdist")["Requires-Python"]
    if SpecifierSet(allowed).contains(running, prereleases=True):
        return Finding("Python", "good", running)
    return Finding(
        "Python",
        "broken",
        f"{running}, but kdist needs {allowed}",
        f"make an environment with Python {allowed}",
    )


def find_packages(
    requires: Sequence[str] | None = None,
    version_of: Callable[[str], str] = importlib.metadata.version,
) -> list[Finding]:
    """Are the packages that kdist needs installed, in versions that it was tested with?

    Args:
        requires: The requirements, such as `keras>=3.14,<4`; by default those of the installed
            kdist.
        version_of: Returns the installed version of a package.

    Returns:
        A line for kdist, TensorFlow and Keras each, and one for all others.
    """
    from packaging.requirements import Requirement

    from .. import __version__

    lines = importlib.metadata.requires("kdist") if requires is None else requires
    needed = [Requirement(line) for line in lines or ()]
    wrong: dict[str, str] = {}
    found: dict[str, str] = {}
    for one in needed:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            found[one.name] = version_of(one.name)
        except importlib.metadata.PackageNotFoundError:
            wrong[one.name] = f"{one.name} is not installed"
            continue
        if not one.specifier.contains(found[one.name], prereleases=True):
            wrong[one.name] = f"{one.name} {found[one.name]}, but kdist needs {one.specifier}"
    findings = [Finding("kdist", "good", __version__)]
    by_name = {one.name: one for one in needed}
    for name, title in zip(_SEPARATE, ("TensorFlow", "Keras"), strict=True):
        if name in wrong:
            findings.append(Finding(title, "broken", wrong.pop(name), _install([by_name[name]])))
        elif name in found:
            known = f"{found[name]}, which this version of kdist was tested with"
            findings.append(Finding(title, "good", untested({title: found[name]}) or known))
    others = [by_name[name] for name in wrong]
    if others:
        text = "; ".join(wrong.values())
        return [*findings, Finding("other packages", "broken", text, _install(others))]
    count = len(found.keys() - set(_SEPARATE))
    return [*findings, Finding("other packages", "good", f"all {count} that kdist needs")]


def _install(needed: Sequence[object]) -> str:
    return "pip install " + " ".join(f"'{one}'" for one in needed)
