"""Programs that run one step at a time on a shared disk, and may stop at any step for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from zlib import crc32

import pyarrow as pa

from pyspark_warren.spool.store import Fill


class Killed(BaseException):
    """The program's process ends here."""


class Program:
    """A function in a thread of its own, which runs only while `step` waits for it."""

    def __init__(self, run: Callable[[Program], None]) -> None:
        self.over = False
        self.killed = False
        self.wrong: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[Program], None]) -> None:
        self._go.acquire()
        try:
            if not self.killed:
                run(self)
        except Killed:
            pass
        except BaseException as wrong:
            self.wrong = wrong
        self.over = True
        self._paused.release()

    def step(self) -> None:
        """Run to the next pause; raises what the program raised."""
        assert not self.over
        self._go.release()
        self._paused.acquire()
        if self.wrong is not None:
            raise self.wrong

    def kill(self) -> None:
        """End the program where it stands."""
        self.killed = True
        if not self.over:
            self.step()

    def pause(self) -> None:
        """Called by the program: let others run."""
        self._paused.release()
        self._go.acquire()
        if self.killed:
            raise Killed


class Disk:
    """The files of all programs.

    whole  whether files appear whole
    late   writes whose programs were told that they failed, and which may still land
    """

    def __init__(self, random: Random, whole: bool) -> None:
        self.random = random
        self.whole = whole
        self.files: dict[str, bytes] = {}
        self.late: list[tuple[str, bytes]] = []
        self.trouble = 0.0

    def land_late(self) -> None:
        """A request that was given up reaches the store."""
        path, data = self.late.pop(self.random.randrange(len(self.late)))
        self.files[path] = data


class SteppingStore:
    """`store.Store` on the disk for one program, with a pause before, within and after each call.

    A listing is no snapshot: it looks at some names, pauses, and looks at the others.
    """

    def __init__(self, disk: Disk, pause: Callable[[], None]) -> None:
        self.disk = disk
        self.pause = pause

    @property
    def whole(self) -> bool:
        return self.disk.whole

    def make(self, folder: str) -> None:
        self.pause()

    def sizes(self, folder: str) -> dict[str, int]:
        self.pause()
        found = self._names(folder, 0)
        self.pause()
        found |= self._names(folder, 1)
        self.pause()
        return found

    def _names(self, folder: str, half: int) -> dict[str, int]:
        prefix = folder + "/"
        return {
            path[len(prefix) :]: len(data)
            for path, data in self.disk.files.items()
            if path.startswith(prefix)
            and "/" not in path[len(prefix) :]
            and crc32(path.encode()) % 2 == half
        }

    def write(self, folder: str, name: str, fill: Fill) -> None:
        sink = pa.BufferOutputStream()
        fill(sink)
        data = sink.getvalue().to_pybytes()
        path = f"{folder}/{name}"
        disk = self.disk
        self.pause()
        if disk.random.random() < disk.trouble:
            if disk.random.random() < 0.5:
                disk.late.append((path, data))
            raise OSError(28, "No space left on device, or the answer did not come in time")
        if not disk.whole:
            disk.files[path] = data[: disk.random.randint(0, len(data))]
            self.pause()
        disk.files[path] = data
        self.pause()

    def open(self, path: str) -> pa.NativeFile:
        self.pause()
        if path not in self.disk.files:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.disk.files[path])

    def remove(self, path: str) -> None:
        self.pause()
        self.disk.files.pop(path, None)
