"""`python -m kdist._upstream.patches [PAGE]`: print the table, or update a page's."""

import sys
from pathlib import Path

from . import PATCHES
from .markdown import markdown, with_table

if sys.argv[1:]:
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(), PATCHES))
else:
    print(markdown(PATCHES), end="")
