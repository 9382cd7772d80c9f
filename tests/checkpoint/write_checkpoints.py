"""`python write_checkpoints.py FOLDER POINT`: commit checkpoints, and be killed at a point."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
from kdist.checkpoint import checkpoint_folder
from kdist.checkpoint.checkpoint_folder import CheckpointStore

KILLED_AT = 3


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder, point):
    replace, write = Path.replace, checkpoint_folder.write_checkpoint
    store = CheckpointStore(folder)
    found = store.read_newest()
    epoch = found[0].epoch if found else 0

    def replaced(part, to):
        if epoch == KILLED_AT and point == "before the rename":
            die()
        replace(part, to)
        if epoch == KILLED_AT and point == "after the rename":
            die()

    def written(file, arrays, state):
        if epoch == KILLED_AT and point == "in the file":
            file.write(b"a part")
            file.flush()
            die()
        return write(file, arrays, state)

    if point != "never":
        Path.replace, checkpoint_folder.write_checkpoint = replaced, written
    while True:
        epoch += 1
        weight = np.full(100_000, epoch, "float32")
        store.commit(epoch=epoch, batch=0, arrays={"weight": weight}, state={"epoch": epoch})
        print(epoch, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
