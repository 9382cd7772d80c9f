"""The table of patches as Markdown, for `docs/design/keras-patches.md`."""

import itertools
from collections.abc import Iterable

from ..patching import Patch

BEGIN = "<!-- begin: python -m kdist._upstream.patches -->"
END = "<!-- end -->"


def markdown(patches: Iterable[Patch]) -> str:
    """The table, a row for each run of patches that are there for the same reason."""
    lines = [
        "| replaced | what stock does | issue | seen in | canary |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, group in itertools.groupby(patches, key=lambda one: (one.why, one.canary)):
        alike = list(group)
        first = alike[0]
        places = "<br>".join(_place(one, first) for one in alike)
        cells = [places, first.why, _link(first.issue), first.seen_in, f"`{first.canary}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, patches: Iterable[Patch]) -> str:
    """A page, the table between its two marks replaced by that of `patches`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown(patches)}{END}{after}"


def _place(patch: Patch, first: Patch) -> str:
    """The path, or only the name where the first of the row has the same before it."""
    start = first.path.removesuffix(first.name)
    alike = patch is not first and patch.path == start + patch.name
    return f"`{patch.name if alike else patch.path}`{_WHOSE if patch.classes else ''}"


_WHOSE = " of a model's classes"


def _link(issue: str) -> str:
    if not issue:
        return "none"
    repository, _, number = issue.partition("#")
    return f"[{issue}](https://github.com/{_REPOSITORIES[repository]}/issues/{number})"


_REPOSITORIES = {"keras": "keras-team/keras", "tensorflow": "tensorflow/tensorflow"}
