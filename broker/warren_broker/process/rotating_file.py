"""A file that is appended to, and put aside when it is large: `log`, `log.1`, `log.2` …"""

from __future__ import annotations

import os
from pathlib import Path


class RotatingFile:
    """Appends whole pieces; on a full disk a piece is there or not, never half of it.

    bytes_max  a file that is as large is put aside before the next piece
    files_max  files that are kept, the one that is written included; at least 2
    mode       permissions of a new file
    """

    def __init__(self, path: Path, bytes_max: int, files_max: int, mode: int) -> None:
        assert files_max > 1, files_max
        self.path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._mode = mode

    def append(self, data: bytes) -> None:
        """Append all of it; raises OSError."""
        self._rotate()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        number = os.open(self.path, flags, self._mode)
        try:
            before = os.fstat(number).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(number, view) :]
            except OSError:
                os.ftruncate(number, before)
                raise
        finally:
            os.close(number)

    def files(self) -> list[Path]:
        """Return the files that there are, the newest first."""
        found = []
        for number in range(self._files_max):
            if not self._named(number).exists():
                break
            found.append(self._named(number))
        return found

    def _rotate(self) -> None:
        try:
            if self.path.stat().st_size < self._bytes_max:
                return
        except FileNotFoundError:
            return
        names = self.files()
        for number in range(min(len(names), self._files_max - 1), 0, -1):
            names[number - 1].replace(self._named(number))

    def _named(self, number: int) -> Path:
        return self.path if not number else self.path.with_name(f"{self.path.name}.{number}")
