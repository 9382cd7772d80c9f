"""`python -m kdist._upstream.patches [PAGE]`: print the tables, or update a page's."""

import sys
from pathlib import Path

from . import SECTIONS
from .markdown import markdown, with_tables

if sys.argv[1:]:
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(), SECTIONS))
else:
    print(markdown(SECTIONS), end="")
