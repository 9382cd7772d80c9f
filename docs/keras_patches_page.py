"""Writes the tables of `docs/design/keras-patches.md` from the list of patches.

python docs/keras_patches_page.py
"""

import itertools
from pathlib import Path

from kdist._upstream.all_patches import ONE_MACHINE, WORKERS

PATH = Path(__file__).parent / "design" / "keras-patches.md"
SECTIONS = {"Of all strategies": ONE_MACHINE, "Of several workers": WORKERS}
BEGIN = "<!-- begin: python docs/keras_patches_page.py -->"
END = "<!-- end -->"


def page():
    """The page as Markdown, with a new table for each section."""
    before, _, rest = PATH.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(f"## {title}\n\n{_table(patches)}" for title, patches in SECTIONS.items())
    return f"{before}{BEGIN}\n{tables}{END}{after}"


def _table(patches):
    """A table with one row for consecutive patches with the same reason and test."""
    lines = [
        "| function | what stock Keras or TensorFlow does | seen in | upstream test |",
        "| --- | --- | --- | --- |",
    ]
    for _, group in itertools.groupby(patches, key=lambda patch: (patch.why, patch.test)):
        first, *others = group
        names = "<br>".join([f"`{first.path}`", *(_name(patch, first) for patch in others)])
        lines.append(f"| {names} | {first.why} | {first.seen_in} | `{first.test}` |")
    return "\n".join(lines) + "\n"


def _name(patch, first):
    """The full name, or its last part if the patch is beside the first patch of the row."""
    start = first.path.removesuffix(first.name)
    return f"`{patch.name if patch.path == start + patch.name else patch.path}`"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
