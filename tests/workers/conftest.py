"""The cases are those of tests/parity."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "parity"), str(TESTS / "checkpoint")]
