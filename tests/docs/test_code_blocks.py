"""Every Python block of the README and the documentation runs, or says why it cannot.

The blocks of a page run in one namespace, in order, in this process and in a folder of their own.
An HTML comment right above a block changes that:

    <!-- not run: needs several GPUs -->
    <!-- run with: epochs=40 -> epochs=1; width=10 -> width=1 -->
"""

import doctest
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from markdown_pages import PAGES, blocks, page_id

pytestmark = pytest.mark.slow


def of_language(*languages):
    pages = [
        page for page in PAGES if any(b.language in languages for b in blocks(page.read_text()))
    ]
    return pytest.mark.parametrize("page", pages, ids=page_id)


def to_run(block):
    """The block's code as it is run, `None` where it is not."""
    kind, _, rest = block.comment.partition(":")
    if kind == "not run":
        assert rest.strip(), f"line {block.line}: a block that is not run says why"
        return None
    code = block.code
    if kind == "run with":
        for change in rest.split(";"):
            before, after = change.strip().split(" -> ")
            assert before in code, f"line {block.line}: there is no {before!r} to be changed"
            code = code.replace(before, after)
    return code


def given():
    """Return the data that the README calls yours."""
    draws = np.random.default_rng(0)
    images = draws.normal(size=(24, 28, 28, 1)).astype("float32")
    labels = draws.integers(0, 10, size=24)
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
    return {"train": batches, "test": batches}


@pytest.mark.usefixtures("without_graph_optimizer")
@of_language("python")
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("documented")  # that classes and functions can say where they are
    monkeypatch.setitem(sys.modules, module.__name__, module)
    if page.name == "README.md":
        vars(module).update(given())
    for block in blocks(page.read_text()):
        code = to_run(block) if block.language == "python" else None
        if code is not None:
            # At their lines of the page, for tracebacks and for AutoGraph, which reads the source.
            exec(compile("\n" * (block.line - 1) + code, str(page), "exec"), vars(module))


@of_language("pycon")
def test_sessions_give_what_they_show(page):
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for block in blocks(page.read_text()):
        if block.language == "pycon":
            runner.run(parser.get_doctest(block.code, {}, page_id(page), str(page), block.line))
    assert runner.summarize().failed == 0


@of_language("toml")
def test_toml_blocks_can_be_read(page):
    import tomllib

    for block in blocks(page.read_text()):
        if block.language == "toml" and "--8<--" not in block.code:
            assert tomllib.loads(block.code)
