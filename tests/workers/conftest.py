"""The cases are those of tests/parity."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
