"""Storages in memory whose process is killed at its n-th write."""

import itertools
import os

from fsspec.implementations.memory import MemoryFileSystem


class KilledError(BaseException):
    """The process is gone."""


class MortalStorage(MemoryFileSystem):
    """Shows the half of a file that was being written, unless it is an object store's."""

    protocol = "mortal"
    store, pseudo_dirs = {}, [""]
    cachable = False
    writes = itertools.count()
    killed_at = None
    is_whole = False

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("mortal://"))

    @classmethod
    def begin(cls, killed_at=None):
        """Begin a process, which is killed at a third of a write, or never."""
        cls.writes, cls.killed_at = itertools.count(), killed_at

    def _write(self, write, half):
        """Kills the process before, amid or after a write."""
        moment = next(type(self).writes)
        if self.killed_at is not None and moment == self.killed_at // 3:
            if self.killed_at % 3 == 1:
                half()
            elif self.killed_at % 3 == 2:
                write()
            raise KilledError
        write()

    def put_file(self, source, target, **options):
        def half():
            if not self.is_whole:
                with open(source, "rb") as file:
                    self.pipe_file(target, file.read(os.path.getsize(source) // 2))

        self._write(lambda: MemoryFileSystem.put_file(self, source, target, **options), half)

    def mv(self, old, new, **options):
        self._write(
            lambda: MemoryFileSystem.mv(self, old, new, **options), lambda: self.copy(old, new)
        )

    def rm_file(self, path):
        self._write(lambda: MemoryFileSystem.rm_file(self, path), lambda: None)


class MortalObjectStore(MortalStorage):
    """Shows whole files only, as S3 does."""

    protocol = ("mortal", "s3")
    is_whole = True
