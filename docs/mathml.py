"""MkDocs hook: formulas become MathML when a page is built, so no script renders them later."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# The output of pymdownx.arithmatex for $…$ and $$…$$.
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(page_html: str, **_: Any) -> str:
    """Replace every formula of a page."""

    def mathml(found: re.Match[str]) -> str:
        display = "block" if found["tag"] == "div" else "inline"
        return str(convert(html.unescape(found["latex"]), display=display))

    return _FORMULA.sub(mathml, page_html)
