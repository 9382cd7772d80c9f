"""The table of patches as Markdown, for `docs/design/keras-patches.md`."""

import itertools
from collections.abc import Iterable, Mapping

from ..patching import Patch

BEGIN = "<!-- begin: python -m kdist._upstream.patches -->"
END = "<!-- end -->"


def markdown(sections: Mapping[str, Iterable[Patch]]) -> str:
    """Return a table under each heading."""
    return "\n".join(f"## {title}\n\n{_table(patches)}" for title, patches in sections.items())


def _table(patches: Iterable[Patch]) -> str:
    """Return a table with one row for consecutive patches with the same reason and canary."""
    lines = [
        "| function | what stock Keras or TensorFlow does | issue | seen in | canary |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, group in itertools.groupby(patches, key=lambda one: (one.why, one.canary)):
        patches_of_row = list(group)
        first = patches_of_row[0]
        names = "<br>".join(_name(one, first) for one in patches_of_row)
        cells = [names, first.why, _link(first.issue), first.seen_in, f"`{first.canary}`"]
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
