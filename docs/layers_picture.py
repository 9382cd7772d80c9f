"""Draws `docs/images/layers.svg`: the folders and modules of `kdist/`, in layers by their imports.

python docs/layers_picture.py
"""

import ast
import graphlib
import textwrap
from html import escape
from pathlib import Path

import grimp

PATH = Path(__file__).parent / "images" / "layers.svg"
PACKAGE = Path(__file__).parents[1] / "kdist"
WIDTH, GAP, LINE = 960, 6, 13
PER_LINE = 3


def picture():
    """The picture as SVG: a band for each layer, the highest first, with a box for each folder."""
    bands, top = [], GAP
    for layer in reversed(layers()):
        band, height = draw_band(layer, top)
        bands.append(band)
        top += height + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>\n{"".join(bands)}</svg>\n'
    )


def layers():
    """Names of `kdist/`, layer by layer: a name imports only from the layers before its own."""
    graph = grimp.build_graph("kdist", exclude_type_checking_imports=True, cache_dir=None)
    names = graph.find_children("kdist")
    for name in names:
        graph.squash_module(name)
    imported = {
        name: graph.find_modules_directly_imported_by(name) - {name, "kdist"} for name in names
    }
    order = graphlib.TopologicalSorter(imported)
    order.prepare()
    found = []
    while order.is_active():
        layer = order.get_ready()
        found.append(sorted(name.removeprefix("kdist.") for name in layer))
        order.done(*layer)
    return found


def draw_band(names, top):
    """The band of one layer, and its height."""
    boxes, bottom = [], top + GAP
    for start in range(0, len(names), PER_LINE):
        line = names[start : start + PER_LINE]
        width = (WIDTH - 3 * GAP) // len(line) - GAP
        texts = [textwrap.wrap(summary_of(name), width // 6) for name in line]
        height = 2 * LINE + LINE * max(map(len, texts))
        for number, (name, text) in enumerate(zip(line, texts, strict=True)):
            left = 2 * GAP + number * (width + GAP)
            boxes.append(draw_box(name, text, left, bottom, width, height))
        bottom += height + GAP
    height = bottom - top
    band = f'<rect x="{GAP}" y="{top}" width="{WIDTH - 2 * GAP}" height="{height}" fill="#e8eaf6"/>'
    return "\n".join([band, *boxes, ""]), height


def draw_box(name, text, left, top, width, height):
    """The box of a folder or module: its name, and lines of text."""
    lines = [
        f'<text x="{left + 8}" y="{top + 31 + LINE * number}" font-size="11">{escape(line)}</text>'
        for number, line in enumerate(text)
    ]
    box = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="4" fill="white"/>'
    title = f'<text x="{left + 8}" y="{top + 16}" font-weight="bold">{path_of(name).name}</text>'
    return "\n".join([box, title, *lines])


def path_of(name):
    """The folder or module of that name."""
    return PACKAGE / name if (PACKAGE / name).is_dir() else PACKAGE / f"{name}.py"


def summary_of(name):
    """The first line of the docstring of a folder or module."""
    path = path_of(name)
    module = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("`", "")


if __name__ == "__main__":
    PATH.write_text(picture(), encoding="utf-8")
