"""The memory of the process of a try: its peak, and its limit."""

import mmap
import subprocess
import sys

from kdist.finders.one_try import limit_memory, memory_now, reset_peak

SIZE = 2**27


def test_a_peak_that_is_over_is_forgotten():
    with mmap.mmap(-1, SIZE) as large:
        for place in range(0, SIZE, mmap.PAGESIZE):
            large[place] = 1
        used = memory_now()["VmRSS"]
    assert memory_now()["VmHWM"] > used - SIZE // 2
    reset_peak()
    assert memory_now()["VmHWM"] < used - SIZE // 2


LIMITED = """
from kdist.finders.one_try import limit_memory
assert limit_memory(2**26)
small = bytearray(2**25)
try:
    bytearray(2**27)
except MemoryError:
    print("no more")
"""


def test_an_allocation_beyond_the_limit_fails():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.stdout == "no more\n", done.stderr
    assert not limit_memory(None)
