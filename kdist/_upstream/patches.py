"""The patches: all functions of Keras and TensorFlow that kdist replaces.

`python -m kdist._upstream.patches [PAGE]` prints them as a Markdown table, or updates a page's.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import fit, replicas, rows, steps, worker_callbacks, worker_saving, worker_steps
from .patching import Patch

# What every strategy needs.
ONE_MACHINE: tuple[Patch, ...] = (
    *fit.DATA_PATCHES,
    *fit.HOOK_PATCHES,
    *fit.OBSERVER_PATCHES,
    *fit.OPTION_PATCHES,
    *steps.PATCHES,
    *replicas.PATCHES,
    *rows.PATCHES,
)

# What strategies of several workers need besides.
WORKERS: tuple[Patch, ...] = (
    *worker_steps.PATCHES,
    *rows.WORKER_PATCHES,
    *worker_callbacks.PATCHES,
    *worker_saving.PATCHES,
)

PATCHES = (*ONE_MACHINE, *WORKERS)
SECTIONS = {"Of all strategies": ONE_MACHINE, "Of several workers": WORKERS}


@functools.cache
def install() -> None:
    """Install the patches of all strategies, once per process, when the first one is made."""
    for patch in ONE_MACHINE:
        patch.install()


@functools.cache
def install_for_workers() -> None:
    """Install those of strategies of several workers, when the first one is made."""
    for patch in WORKERS:
        patch.install()


@functools.cache
def install_for_data() -> None:
    """Install the patches that tell training data their epoch, when the first data are made."""
    for patch in fit.DATA_PATCHES:
        patch.install()


BEGIN = "<!-- begin: python -m kdist._upstream.patches -->"
END = "<!-- end -->"


def markdown(sections: Mapping[str, Iterable[Patch]]) -> str:
    """Return a table under each heading."""
    return "\n".join(f"## {title}\n\n{_table(patches)}" for title, patches in sections.items())


def _table(patches: Iterable[Patch]) -> str:
    """Return a table with one row for consecutive patches with the same reason and test."""
    lines = [
        "| function | what stock Keras or TensorFlow does | issue | seen in | upstream test |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, group in itertools.groupby(patches, key=lambda one: (one.why, one.test)):
        patches_of_row = list(group)
        first = patches_of_row[0]
        names = "<br>".join(_name(one, first) for one in patches_of_row)
        cells = [names, first.why, _link(first.issue), first.seen_in, f"`{first.test}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str, sections: Mapping[str, Iterable[Patch]]) -> str:
    """Return a page with the tables between its two marks replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown(sections)}{END}{after}"


def _name(patch: Patch, first: Patch) -> str:
    """Return the full name, or the last part of it if the rest is that of the row's first."""
    start = first.path.removesuffix(first.name)
    shares_start = patch is not first and patch.path == start + patch.name
    return f"`{patch.name if shares_start else patch.path}`"


def _link(issue: str) -> str:
    if not issue:
        return "none"
    repository, _, number = issue.partition("#")
    return f"[{issue}](https://github.com/{_REPOSITORIES[repository]}/issues/{number})"


_REPOSITORIES = {"keras": "keras-team/keras", "tensorflow": "tensorflow/tensorflow"}

if __name__ == "__main__":
    if sys.argv[1:]:
        path = Path(sys.argv[1])
        path.write_text(with_tables(path.read_text(), SECTIONS))
    else:
        print(markdown(SECTIONS), end="")
