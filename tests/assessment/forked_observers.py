"""Observes programs in processes that are forked from this one, which has imported TensorFlow.

Reads a line of JSON for each: order, program, and the file for what it prints; prints its exit
code. TensorFlow is not started here, so each process has devices of its own; only the imports, some
six seconds, are not repeated.
"""

import json
import os
import sys
import traceback
import warnings

from kdist.assessment import observer, planned_rates  # noqa: F401 - imported once
from kdist.assessment.observe import Order, observe


def run(order, program, output):
    """Observe a program in the process that was forked for it."""
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(stream, number)
    code = 70
    try:
        code = observe(Order(**order), program)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


for line in sys.stdin:
    job = json.loads(line)
    with warnings.catch_warnings():
        # JAX warns of its threads, of which there are none before it is used.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        run(**job)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
