"""Older copies of a node's directory, put back in its place: peers must detect them."""

from __future__ import annotations

from sim.whole.files import MemoryFiles
from sim.whole.process import DATA_DIR, Machine
from sim.whole.programs import NEW
from warren_raft.storage import synced_mark
from warren_raft.storage.errors import StorageError
from warren_raft.storage.group_log import Memtable
from warren_raft.storage.identity import SYNCED, WAL, Directory, open_directory
from warren_raft.storage.recovery import recover
from warren_raft.storage.wal import file_name

LOOK_AGAIN_MS = 60
LOOKS_MAX = 25


class OlderCopy:
    """A copy of a running node's disk, as a power cut now would leave it, for later.

    A directory cannot prove that it is the newest; its peers record the position of its log.
    docs/explanation/membership.md lists what they cannot detect. A world contains none of that:
    - Every other node has on its own disk that the log had come further than the copy reaches. So
      the node that is met first knows, also after all of them were killed.
    - Every node is there: one that comes later does not know this one.
    - Only one node has an unlucky disk: no two are rolled back together.
    - The copy is of the disk that the node still has: none from before it had lost everything.
    - If the node ends before it was noticed, its disk is lost (`Machine.crash`): what it writes
      itself counts after another start.
    Where that does not come about in time, the node starts with the directory that it has.
    newest_only  only the newest file of the log is older, with the two files that name it
    """

    def __init__(self, machine: Machine, newest_only: bool) -> None:
        self.machine = machine
        self.world = machine.world
        self.newest_only = newest_only
        self.copy = machine.files.as_after_power_loss()
        self.disks = machine.disks
        assert machine.running is not None
        machine.to_copy = True
        self.written = machine.running.host.position()
        self.looks = 0

    def take_down(self, silent: bool) -> None:
        """End the node after it has reported later writes, and put the copy in its place.

        Not before it is certain to be detected.
        """
        machine = self.machine
        unfit = machine.damaged or machine.aged or machine.disks != self.disks
        if unfit or self.world.misfortunes.stopped:
            machine.to_copy = False
            return
        if machine.running is None or not self.everybody_heard():
            self.looks += 1
            machine.to_copy = self.looks < LOOKS_MAX
            if machine.to_copy:
                self.world.agenda.after(LOOK_AGAIN_MS, self.take_down, silent)
            return
        self.looks = 0
        machine.crash(silent)
        machine.copying = True
        self.world.agenda.after(LOOK_AGAIN_MS, self.look)

    def look(self) -> None:
        """Put the copy in place, or check again later, or let the node start as it is."""
        machine = self.machine
        if machine.damaged or machine.disks != self.disks:
            machine.to_copy = machine.copying = False
            machine.start()
            return
        older = self.older()
        disk, end = self.position(older)
        if disk and self.everybody_knows(disk, end):
            self.world.note("older copy", machine.name, self.newest_only, end)
            self.world.misfortunes.copies += 1
            machine.files.restore(older)
            machine.aged = disk
            machine.images.clear()
        else:
            self.looks += 1
            if disk and self.looks < LOOKS_MAX:
                self.world.agenda.after(LOOK_AGAIN_MS, self.look)
                return
        machine.to_copy = machine.copying = False
        machine.start()

    def older(self) -> MemoryFiles:
        """Return the disk that replaces the directory."""
        if not self.newest_only:
            return self.copy
        machine = self.machine
        mixed = machine.files.as_after_power_loss()
        known = synced_mark.read(mixed, DATA_DIR / WAL)
        names = (f"{WAL}/{file_name(known.file)}", f"{WAL}/{SYNCED}", SYNCED)
        for name in names:
            path = str(DATA_DIR / name)
            data = self.copy.safe_bytes(path) if path in self.copy.paths() else None
            mixed.kernel.put(path, data)
        return mixed

    def position(self, files: MemoryFiles) -> tuple[int, int]:
        """Return its disk's id, and the last write of its log.

        0, 0: recovery would refuse it, or it is another disk.
        """
        disk = opened(self.machine.files.as_after_power_loss(), self.machine.name).identity.disk
        files = files.as_after_power_loss()
        directory = opened(files, self.machine.name)
        try:
            found = recover(files, directory, Memtable(1 << 20))
        except StorageError:
            return 0, 0
        return (int(disk, 16), found.next_batch - 1) if directory.identity.disk == disk else (0, 0)

    def everybody_heard(self) -> bool:
        """Return whether every other process knows of the later writes."""
        return all(
            machine.running is not None
            and machine.running.host._write_marks.known(self.machine.name)[1] > self.written
            for machine in self.world.processes.values()
            if machine is not self.machine and not machine.gone
        )

    def everybody_knows(self, disk: int, end: int) -> bool:
        """Return whether every other node has the later writes of that disk recorded durably."""
        for name, machine in self.world.processes.items():
            if machine.gone or machine is self.machine:
                continue
            if machine.absent:
                return False
            files = machine.files.as_after_power_loss()
            known = opened(files, name).identity.vouched.get(self.machine.name)
            if known is None or int(known[0], 16) != disk or known[1] <= end:
                return False
        return True


def opened(files: MemoryFiles, name: str) -> Directory:
    """Open that node's directory on a disk."""
    return open_directory(files, DATA_DIR, "sim", name, lambda: 1, NEW)
